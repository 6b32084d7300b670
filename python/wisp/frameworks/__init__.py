"""What the modules for training frameworks share. The modules themselves are `wisp.trl`,
`wisp.verl`, `wisp.nemo_rl`, `wisp.ray` and so on.

`refit` carries weights from a trainer's ranks to those of its rollouts, and `server_switch` tells
rollout servers to serve each step. `seams` finds the places in a framework that wisp hooks into,
and `when_imported` runs something once a module has been imported.
"""
