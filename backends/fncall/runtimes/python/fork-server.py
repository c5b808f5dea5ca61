"""Forks a warm interpreter into the cell of each call.

Runs as the root of a container that nothing else runs in. The keeper of a cell (guest/agent/cell_program.c) connects, says which user
the call has, and passes where its words will come from, its streams, its namespaces and the doors of its cgroups. A fork enters all of
these, gives up every right, answers, and waits for the words. This process tells the keeper how the fork ended.
"""

import ctypes
import gc
import io
import os
import select
import socket
import struct
import sys

# What calls use most: loaded once, shared by all.
import abc, array, atexit, bisect, collections, contextlib, copy, dataclasses, datetime, decimal, enum, fractions, functools, heapq  # noqa: E401,F401
import itertools, json, math, operator, random, re, statistics, string, threading, time, traceback, types, typing  # noqa: E401,F401

NAME = "\0dsec-fork-server"
WORDS_LIMIT = 2 << 20
PASSED_LIMIT = 32
PROC_CHILDREN = 0x20000000
CGROUP = 0x02000000
# Mounts, IPC, network, host name.
ROOM = 0x00020000 | 0x08000000 | 0x40000000 | 0x04000000
SET_DUMPABLE, SET_SECCOMP, FILTER_MODE, SET_NO_NEW_PRIVS = 4, 22, 2, 38

libc = ctypes.CDLL(None, use_errno=True)


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def must(result):
    if result != 0:
        raise OSError(ctypes.get_errno(), "a step of a fork")


def read_confinement():
    with os.fdopen(4, "rb") as file:
        data = file.read()
    (size,) = struct.unpack_from("<I", data)
    instructions = ctypes.create_string_buffer(data[4 : 4 + size], size)
    program = Program(size // 8, ctypes.cast(instructions, ctypes.c_void_p))
    return program, instructions, data[4 + size :]


program, _instructions, profile = read_confinement()


def enter(uid, cell, doors):
    for door in doors:
        os.write(door, b"0")
    must(libc.unshare(CGROUP))
    must(libc.setns(cell, ROOM))
    os.chdir("/work")
    os.setsid()
    if profile:
        with open("/proc/thread-self/attr/apparmor/current", "wb", buffering=0) as file:
            file.write(b"changeprofile " + profile)
    must(libc.prctl(SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    must(libc.prctl(SET_SECCOMP, FILTER_MODE, ctypes.byref(program)))
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    # The change of user hid the process from itself: /dev/stdout and the like would be closed to it.
    must(libc.prctl(SET_DUMPABLE, 1, 0, 0, 0))


def take_words(go):
    """The words that a fresh interpreter would have been started with, and its variables."""
    data = go.recv(WORDS_LIMIT)
    if not data:
        os._exit(0)
    (size,) = struct.unpack_from("<I", data)
    argv = [os.fsdecode(word) for word in data[4 : 4 + size].split(b"\0")[:-1]]
    variables = dict(line.split(b"=", 1) for line in data[4 + size :].split(b"\0")[:-1])
    return argv, variables


def text_stream(fd, mode):
    raw = io.FileIO(fd, mode, closefd=False)
    buffered = io.BufferedReader(raw) if mode == "r" else io.BufferedWriter(raw)
    errors = "backslashreplace" if fd == 2 else "surrogateescape"
    return io.TextIOWrapper(buffered, encoding="utf-8", errors=errors, line_buffering=fd == 2)


def run_script(argv):
    """Ends the process as the interpreter would, but for tearing itself down."""
    main = types.ModuleType("__main__")
    main.__file__ = argv[1]
    main.__builtins__ = __builtins__
    sys.modules["__main__"] = main
    sys.argv = argv[1:]
    sys.path.insert(0, "/work")
    status = 0
    try:
        with open(argv[1], "rb") as file:
            code = compile(file.read(), argv[1], "exec", dont_inherit=True)
        exec(code, main.__dict__)
    except SystemExit as end:
        status = exit_status(end.code)
    except BaseException as error:
        error = error.with_traceback(error.__traceback__.tb_next)
        sys.excepthook(type(error), error, error.__traceback__)
        status = 1
    try:
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        status = status or 120
    try:
        sys.stderr.flush()
    finally:
        os._exit(status)


def exit_status(code):
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def become_call(connection, uid, fds):
    try:
        keep, streams, cell, doors = fds[0], fds[1:4], fds[4], fds[5:]
        enter(uid, cell, doors)
        for fd, stream in enumerate(streams):
            os.dup2(stream, fd)
        connection.send(b"made")
        os.dup2(keep, 3)
        os.closerange(4, os.sysconf("SC_OPEN_MAX"))
        sys.stdin, sys.stdout, sys.stderr = text_stream(0, "r"), text_stream(1, "w"), text_stream(2, "w")
        sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
        with socket.socket(fileno=3) as go:
            argv, variables = take_words(go)
        os.environ.clear()
        os.environb.update(variables)
    except BaseException:
        os._exit(70)
    run_script(argv)


class Server:
    def __init__(self):
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(NAME)
        self.listener.listen(128)
        self.poll = select.epoll()
        self.poll.register(self.listener, select.EPOLLIN)
        self.forks = {}

    def serve(self):
        gc.collect()
        gc.freeze()
        print("ready", flush=True)
        while True:
            for fd, _ in self.poll.poll():
                if fd == self.listener.fileno():
                    self.accept()
                else:
                    self.collect(fd)

    def accept(self):
        connection, _ = self.listener.accept()
        message, fds, _, _ = socket.recv_fds(connection, 64, PASSED_LIMIT)
        try:
            if len(fds) < 5:
                raise OSError("a keeper that passes too little")
            must(libc.setns(fds[4], PROC_CHILDREN))
            pid = os.fork()
        except OSError as error:
            print(error, file=sys.stderr, flush=True)
            connection.close()
            pid = -1
        if pid == 0:
            become_call(connection, int(message), fds)
        for fd in fds:
            os.close(fd)
        if pid > 0:
            end = os.pidfd_open(pid)
            self.forks[end] = (pid, connection)
            self.poll.register(end, select.EPOLLIN)

    def collect(self, end):
        pid, connection = self.forks.pop(end)
        self.poll.unregister(end)
        os.close(end)
        _, status = os.waitpid(pid, 0)
        try:
            connection.send(struct.pack("<i", status))
        except OSError:
            pass
        connection.close()


Server().serve()
