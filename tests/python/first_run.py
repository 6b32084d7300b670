"""What a machine must be able to do that has nothing but the wheel: publish, follow, prove."""

import numpy as np
import wisp

run = "bucket/run"
wisp.init(run)
policy = {"weight": np.ones((64, 64), np.float16)}
server = {"weight": np.zeros((64, 64), np.float16)}
with wisp.Publisher(run, policy) as publisher:
    publisher.publish(0)
    policy["weight"][3, 5] = 2
    publisher.publish(1)
    publisher.flush()
print(wisp.Follower(run, server).sync())
assert policy["weight"].tobytes() == server["weight"].tobytes()
