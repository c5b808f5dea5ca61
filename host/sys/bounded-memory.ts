import { closeSync, ftruncateSync } from "node:fs";
import { libcFunction } from "#host/sys/libc.ts";

const MFD_CLOEXEC = 1;
const MFD_ALLOW_SEALING = 2;
const F_ADD_SEALS = 1033;
const [F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW] = [1, 2, 4];

const memfdCreate = libcFunction<[string, number]>("memfd_create", ["text", "int"]);
const fcntl = libcFunction<[number, number, number]>("fcntl", ["int", "int", "int"]);

/**
 * A file in memory of exactly this size, for good: zeros until it is written to, and whoever writes past its end gets EPERM, be it root. The caller closes the
 * descriptor. `name` is for people who look at processes.
 */
export function openBoundedMemory(name: string, sizeBytes: number): number {
  const fd = memfdCreate(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  try {
    ftruncateSync(fd, sizeBytes);
    fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW);
    return fd;
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}
