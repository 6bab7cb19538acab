"""SCons tools: `Environment(tools=["default", "fw_model"], toolpath=[...])`.

`python -c "import firmwright.sconstools as t; print(t.__path__[0])"` prints the tool
path of an installed copy.
"""
