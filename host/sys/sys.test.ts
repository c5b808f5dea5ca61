import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import {
  closeSync,
  fstatSync,
  ftruncateSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { tmpdir, totalmem } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { hasCode } from "#core/errors.ts";
import { openBoundedMemory } from "#host/sys/bounded-memory.ts";
import { networkOf, processIo } from "#host/sys/counters.ts";
import { tryFlock } from "#host/sys/flock.ts";
import { ioctlRequest } from "#host/sys/ioctl.ts";
import { errorCode, libcFunction, libcFunctionLater, SystemError } from "#host/sys/libc.ts";
import { attachLoop } from "#host/sys/loop.ts";
import { availableMemoryMiB } from "#host/sys/memory.ts";
import { MNT, MS, mount, unmount } from "#host/sys/mount.ts";
import { mountAt, parseMount, readMounts } from "#host/sys/mountinfo.ts";
import { signalProcess } from "#host/sys/pidfd.ts";
import { processStartTicks } from "#host/sys/process.ts";
import { setXattr } from "#host/sys/test-support/xattr.ts";

const root = mkdtempSync(join(tmpdir(), "dsec-sys-"));
after(() => rmSync(root, { recursive: true }));

describe("libc calls", () => {
  test("a failure on another thread is the same error", async () => {
    const later = libcFunctionLater<[number, number, number]>("lseek", ["int", "long", "int"]);
    await assert.rejects(later(-1, 0, 0), (error) => {
      assert.ok(error instanceof SystemError && hasCode(error, "EBADF"));
      assert.deepEqual([error.errno, error.syscall], [-9, "lseek"]);
      return true;
    });
    using file = { fd: openSync(import.meta.filename, "r"), [Symbol.dispose]: () => closeSync(file.fd) };
    assert.equal(await later(file.fd, 5, 0), 5);
  });

  test("a failure is an error with Node's code, errno and syscall", () => {
    assert.throws(
      () => mount("none", join(root, "absent"), "tmpfs"),
      (error) => {
        assert.ok(error instanceof SystemError && hasCode(error, "ENOENT"));
        assert.deepEqual([error.errno, error.syscall], [-2, "mount"]);
        assert.match(error.message, /^ENOENT: no such file or directory, mount$/);
        return true;
      },
    );
  });

  test("codes that Node's table lacks have their kernel name", () => {
    assert.equal(errorCode(122), "EDQUOT");
    assert.equal(errorCode(15), "ENOTBLK");
    assert.equal(errorCode(4000), "E4000");
  });

  test("a symbol that libc lacks fails at the call, not at the import", () => {
    const missing = libcFunction<[number]>("dsec_no_such_function", ["int"]);
    assert.throws(() => missing(1));
  });

  test("request numbers are those of the kernel's headers", () => {
    assert.equal(ioctlRequest("write", 0x94, 14, 4096), 0x5000940e); // BTRFS_IOC_SUBVOL_CREATE
    assert.equal(ioctlRequest("both", 0x94, 40, 16), 0xc0109428); // BTRFS_IOC_QUOTA_CTL
    assert.equal(ioctlRequest("read", 0x94, 43, 48), 0x8030942b); // BTRFS_IOC_QGROUP_LIMIT
  });
});

describe("mounts", () => {
  test("a mount is found under its target and gone after unmount", () => {
    const target = join(root, "a b\\c");
    mkdirSync(target);
    mount("dsec-test", target, "tmpfs", MS.NOSUID | MS.NODEV, "size=64k,mode=700");
    const entry = mountAt(target);
    assert.equal(entry?.fstype, "tmpfs");
    assert.equal(entry?.source, "dsec-test");
    for (const option of ["nosuid", "nodev", "size=64k"]) assert.ok(entry?.options.includes(option), option);
    assert.throws(() => writeFileSync(join(target, "big"), Buffer.alloc(1 << 20)), { code: "ENOSPC" });
    unmount(target, MNT.DETACH);
    assert.equal(mountAt(target), undefined);
    assert.throws(() => unmount(target), { code: "EINVAL" });
  });

  test("optional fields before the dash do not shift the rest", () => {
    const line = "36 35 98:0 /mnt1 /mnt\\0402 rw,noatime shared:7 master:1 - ext3 /dev/root rw,errors=continue";
    assert.deepEqual(parseMount(line), {
      root: "/mnt1",
      target: "/mnt 2",
      fstype: "ext3",
      source: "/dev/root",
      options: ["rw", "noatime", "rw", "errors=continue"],
    });
    assert.ok(readMounts().some((entry) => entry.target === "/"));
  });
});

describe("locks", () => {
  test("a second opening does not get an exclusive lock until the first lets go", () => {
    const file = join(root, "lock");
    const [first, second] = [openSync(file, "w"), openSync(file, "w")];
    assert.equal(tryFlock(first, "exclusive"), true);
    assert.equal(tryFlock(second, "exclusive"), false);
    assert.equal(tryFlock(second, "shared"), false);
    closeSync(first);
    assert.equal(tryFlock(second, "exclusive"), true);
    closeSync(second);
    assert.throws(() => tryFlock(second, "exclusive"), { code: "EBADF" });
  });
});

describe("processes", () => {
  test("a signal reaches the process that started then, and only it", async () => {
    const child = spawn("sleep", ["1000"]);
    await once(child, "spawn");
    const pid = child.pid ?? 0;
    const ticks = processStartTicks(pid) ?? 0;
    assert.ok(ticks > 0);
    assert.equal(signalProcess(pid, ticks + 1, 9), false);
    assert.equal(child.exitCode, null);
    const exit = once(child, "exit");
    assert.equal(signalProcess(pid, ticks, 9), true);
    assert.deepEqual(await exit, [null, "SIGKILL"]);
    assert.equal(processStartTicks(pid), undefined);
    assert.equal(signalProcess(pid, ticks, 9), false);
  });
});

describe("loop devices", () => {
  test("a file system mounts from a file and the device goes with the mount", () => {
    const [image, target] = [join(root, "image"), join(root, "loop")];
    writeFileSync(image, "");
    truncateSync(image, 1 << 20);
    mkdirSync(target);
    const device = attachLoop(image, { readOnly: false, directIo: true });
    const backing = () => readFileSync(`/sys/block/${device.path.slice(5)}/loop/backing_file`, "utf8").trim();
    assert.equal(backing(), image);
    // Nothing that mounts is on it: closing the last user must detach it.
    assert.throws(() => mount(device.path, target, "ext4"), { code: "EINVAL" });
    device[Symbol.dispose]();
    assert.throws(backing, { code: "ENOENT" });
  });

  test("a missing file is ENOENT and takes no device", () => {
    assert.throws(() => attachLoop(join(root, "absent"), { readOnly: true, directIo: false }), { code: "ENOENT" });
  });
});

describe("extended attributes", () => {
  test("an unknown name space is refused, a known one accepted", () => {
    const file = join(root, "xattr");
    writeFileSync(file, "");
    setXattr(file, "user.dsec", Buffer.from("1"));
    assert.throws(() => setXattr(file, "nonsense", Buffer.from("1")), { code: "ENOTSUP" });
  });
});

test("available memory is measured in MiB, and less than there is", () => {
  const availableMiB = availableMemoryMiB();
  assert.ok(Number.isSafeInteger(availableMiB) && availableMiB > 0);
  assert.ok(availableMiB < totalmem() / 1024 / 1024);
});

describe("counters of processes", () => {
  test("a parent takes over what its children did", async () => {
    const before = processIo([process.pid]);
    assert.ok(before !== undefined);
    const child = spawn("dd", ["if=/dev/zero", "of=/dev/null", "bs=1", "count=5000"], { stdio: "ignore" });
    await once(child, "exit");
    const after = processIo([process.pid]);
    assert.ok((after?.writeCalls ?? 0) - before.writeCalls >= 5000);
    assert.ok((after?.readCalls ?? 0) - before.readCalls >= 5000);
  });

  test("a process that is gone counts nothing", () => {
    assert.equal(processIo([2 ** 22 + 1]), undefined);
    assert.equal(networkOf(2 ** 22 + 1), undefined);
    assert.deepEqual(Object.keys(networkOf(process.pid) ?? {}), [
      "receivedBytes",
      "receivedPackets",
      "sentBytes",
      "sentPackets",
    ]);
  });
});

test("memory of a bounded size takes what fits and refuses the rest, also to root", () => {
  const fd = openBoundedMemory("dsec-test", 8192);
  try {
    assert.equal(writeSync(fd, Buffer.alloc(8000, 1)), 8000);
    const more = () => writeSync(fd, Buffer.alloc(8000, 2));
    assert.equal(more(), 192);
    for (const round of [1, 2]) assert.throws(more, { code: "EPERM" }, `try ${round}`);
    assert.throws(() => ftruncateSync(fd, 1 << 20), { code: "EPERM" });
    assert.equal(fstatSync(fd).size, 8192);
  } finally {
    closeSync(fd);
  }
});
