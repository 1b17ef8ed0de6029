"""The counting kind, whose import stands still until a byte comes, as that of a large library does on a busy machine.

`PyDLL` keeps Python's lock during the call: no other thread of the process runs meanwhile.
"""

import ctypes
import os

from tiny_kind import run as run

_pipe = os.open(os.environ["TEST_IMPORT_PIPE"], os.O_RDWR)
ctypes.PyDLL(None).read(_pipe, ctypes.create_string_buffer(1), 1)
