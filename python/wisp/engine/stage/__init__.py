"""What a rank is about to write, worked out while it serves.

Start at `stage`. `layer_reprocessor` is for engines that process weights after loading them: a
second copy of a layer, on which that is done again for the elements that changed.
"""
