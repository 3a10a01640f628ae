"""The playground: a local page on which the knobs of a scenario are turned and its step is played again.

`controls` is what can be turned, `state` where the knobs stand and which scenario that is, `start` what the page begins
with, `player` plays and remembers, `answer` says what is shown, `downloads` what can be kept, `server` is the door. All
but the door is pure; nothing here reads a file that a browser names, and nothing prints.
"""
