"""Runs a program on a terminal as a person would, and says what it showed and how it left the terminal.

usage: on-terminal.py STEPS PROGRAM [ARGUMENT]...
STEPS is a JSON list, carried out in order: {"expect": TEXT} waits until it was shown, {"send": TEXT} types,
{"size": [ROWS, COLUMNS]} resizes, {"kill": SIGNAL} signals the program. Prints one JSON object.
"""

import fcntl
import json
import os
import pty
import select
import signal
import struct
import sys
import termios

steps = json.loads(sys.argv[1])
master, slave = pty.openpty()


def resize(rows, columns):
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


resize(24, 80)
before = termios.tcgetattr(slave)
pid = os.fork()
if pid == 0:
    os.close(master)
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    for fd in range(3):
        os.dup2(slave, fd)
    os.execvp(sys.argv[2], sys.argv[2:])

shown = b""
matched = 0
status = None


def look(seconds):
    global shown, status
    if select.select([master], [], [], seconds)[0]:
        shown += os.read(master, 65536)
    elif status is None:
        ended, code = os.waitpid(pid, os.WNOHANG)
        if ended:
            status = code


for step in steps:
    if "expect" in step:
        wanted = step["expect"].encode()
        while (at := shown.find(wanted, matched)) < 0 and status is None:
            look(0.05)
        matched = at + len(wanted) if at >= 0 else matched
    elif "send" in step:
        os.write(master, step["send"].encode("latin1"))
    elif "size" in step:
        resize(*step["size"])
    elif "kill" in step:
        os.kill(pid, getattr(signal, step["kill"]))
while status is None:
    look(0.05)
while select.select([master], [], [], 0.05)[0]:
    shown += os.read(master, 65536)
result = {
    "shown": shown.decode("utf-8", "replace"),
    "status": os.waitstatus_to_exitcode(status),
    "restored": termios.tcgetattr(slave) == before,
}
print(json.dumps(result))
