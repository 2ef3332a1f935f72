"""The simulated campaigns under Gymnasium's names; importing this file registers them.

    import gymnasium
    import outlay.gym

    env = gymnasium.make("outlay/Habit-v0")            # or, in one: gymnasium.make("outlay.gym:outlay/Habit-v0")

Keyword arguments go to `outlay.simulators.environment.environment`: `days` of an episode, and the campaign's options.
Since its version 1.0 Gymnasium looks for no plugins, so that somebody has to import the file.
"""

from __future__ import annotations

from outlay.core.machine import optional
from outlay.simulators import CAMPAIGNS

with optional():
    from gymnasium.envs.registration import register

NAMES = {name: f"outlay/{name.title().replace('-', '')}-v0" for name in CAMPAIGNS}  # campaign → the name of its world

for campaign, name in NAMES.items():
    register(name, entry_point="outlay.simulators.environment:environment", kwargs={"campaign": campaign})
