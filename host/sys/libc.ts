import { createRequire } from "node:module";
import { constants } from "node:os";
import { getSystemErrorMap } from "node:util";

/** What a libc call takes. `buffer` is memory the kernel reads or fills; `null` is a null pointer. */
export type CType = "int" | "long" | "ulong" | "text" | "buffer";
export type CValue = number | bigint | string | Uint8Array | null;

const C_TYPES: Readonly<Record<CType, string>> = {
  int: "int",
  long: "long",
  ulong: "ulong",
  text: "const char *",
  buffer: "void *",
};

/** A failed libc call, shaped as Node's own system errors are. */
export class SystemError extends Error {
  readonly code: string;
  /** Negative, as in Node's errors. */
  readonly errno: number;
  readonly syscall: string;

  constructor(errno: number, syscall: string) {
    const code = errorCode(errno);
    super(`${code}: ${getSystemErrorMap().get(-errno)?.[1] ?? "system error"}, ${syscall}`);
    this.name = "SystemError";
    this.code = code;
    this.errno = -errno;
    this.syscall = syscall;
  }
}

/**
 * A synchronous libc function that returns -1 and sets errno on failure; that becomes a thrown `SystemError`. The library
 * is loaded at the first call, so that importing a module of `host/sys` costs nothing. `label` names the call in errors
 * where the libc symbol is only `syscall`. Results are C's `int` unless `result` says otherwise.
 */
export function libcFunction<const Args extends readonly CValue[]>(
  symbol: string,
  types: { readonly [K in keyof Args]: CType },
  label = symbol,
  result: "int" | "long" = "int",
): (...args: Args) => number {
  let native: NativeFunction | undefined;
  return (...args) => {
    native ??= loadFunction(symbol, types, result);
    const returned = Number(native.call(...args));
    if (returned === -1) throw new SystemError(native.errno(), label);
    return returned;
  };
}

/**
 * As `libcFunction`, on another thread, for calls that wait for a disk. Memory that it is given is the call's until it is over. Few
 * at a time: the threads are those of Node's own files.
 */
export function libcFunctionLater<const Args extends readonly CValue[]>(
  symbol: string,
  types: { readonly [K in keyof Args]: CType },
): (...args: Args) => Promise<number> {
  let native: NativeFunction | undefined;
  return async (...args) => {
    native ??= loadFunction(symbol, types, "int");
    return await native.later(symbol, args);
  };
}

/** Linux has these, and Node's table does not. Callers tell a kernel that mounts no plain files by the first. */
const MORE_CODES: Readonly<Record<number, string>> = { 15: "ENOTBLK", 109: "ETOOMANYREFS", 117: "EUCLEAN" };

/** `ENOENT` for 2; a number without a name is `E<number>`. */
export function errorCode(errno: number): string {
  for (const [name, value] of Object.entries(constants.errno)) if (value === errno) return name;
  return MORE_CODES[errno] ?? `E${errno}`;
}

interface NativeFunction {
  call(...args: readonly CValue[]): number | bigint;
  errno(): number;
  later(label: string, args: readonly CValue[]): Promise<number>;
}

function loadFunction(symbol: string, types: readonly CType[], result: "int" | "long"): NativeFunction {
  const koffi = createRequire(import.meta.url)("koffi") as typeof import("koffi");
  // The process itself: libc is linked into it already, whatever its file is called on this distribution.
  const call = koffi.load(null).func(
    symbol,
    // Declared as C declares them: a -1 read as `long` would be 4294967295.
    result,
    types.map((type) => C_TYPES[type]),
  );
  const later = (label: string, args: readonly CValue[]) =>
    new Promise<number>((resolve, reject) => {
      call.async(...args, (failure: unknown, returned: number) => {
        if (failure !== null) reject(failure);
        // The thread's own errno is handed to this callback.
        else if (returned === -1) reject(new SystemError(koffi.errno(), label));
        else resolve(returned);
      });
    });
  return { call: (...args) => call(...args), errno: () => koffi.errno(), later };
}
