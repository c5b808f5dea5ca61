import { openSync } from "node:fs";
import { parentPort } from "node:worker_threads";
import { ioctl } from "../sys/ioctl.ts";
import { libcFunction } from "../sys/libc.ts";
import { GATEWAY_PORT } from "./gateway.ts";

const CLONE_NEWNET = 0x40000000;
const [AF_INET, SOCK_STREAM_CLOEXEC, BACKLOG] = [2, 0x80001, 64];
const [SIOCSIFFLAGS, IFF_UP, IFREQ_BYTES] = [0x8914, 1, 40];

const unshare = libcFunction<[number]>("unshare", ["int"]);
const socket = libcFunction<[number, number, number]>("socket", ["int", "int", "int"]);
const bind = libcFunction<[number, Uint8Array, number]>("bind", ["int", "buffer", "int"]);
const listen = libcFunction<[number, number]>("listen", ["int", "int"]);

// This thread alone moves; the descriptors are those of the process, and outlive it.
unshare(CLONE_NEWNET);
const listening = socket(AF_INET, SOCK_STREAM_CLOEXEC, 0);
const loopback = Buffer.alloc(IFREQ_BYTES);
loopback.write("lo", 0, "latin1");
loopback.writeInt16LE(IFF_UP, 16);
ioctl(listening, SIOCSIFFLAGS, loopback);
const address = Buffer.alloc(16);
address.writeUInt16LE(AF_INET, 0);
address.writeUInt16BE(GATEWAY_PORT, 2);
address.set([127, 0, 0, 1], 4);
bind(listening, address, address.length);
listen(listening, BACKLOG);
parentPort?.postMessage({ listening, namespace: openSync("/proc/thread-self/ns/net", "r") });
