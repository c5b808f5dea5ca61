import type {
  FileChange,
  FileDigest,
  FileList,
  FileRead,
  FileTarget,
  FileWatch,
  FileWrite,
  NodeFiles,
  TreeWrite,
} from "#core/files.ts";
import type { SandboxId } from "#core/ids.ts";
import type { FileInfo } from "#core/sandbox.ts";
import type { CommandCall } from "#edge/commands/calls.ts";
import { ComputerCalls } from "#edge/computer-calls.ts";
import { explain } from "#edge/explain.ts";
import {
  changeFile,
  type FilesHost,
  listFiles,
  readFile,
  readTree,
  statFile,
  watchFiles,
  writeFile,
  writeTree,
} from "#edge/files/files.ts";

/** The part of an edge that answers calls about files. */
export abstract class FileCalls extends ComputerCalls implements NodeFiles {
  readFile(id: SandboxId, read: FileRead, signal: AbortSignal): AsyncIterable<Uint8Array | FileDigest> {
    return this.#stream(id, signal, (host) => readFile(host, read));
  }

  writeFile(
    id: SandboxId,
    write: FileWrite,
    bytes: AsyncIterable<Uint8Array>,
    signal: AbortSignal,
  ): Promise<FileDigest> {
    return this.#act(id, signal, (host) => writeFile(host, write, bytes));
  }

  listFiles(id: SandboxId, list: FileList, signal: AbortSignal): AsyncIterable<readonly FileInfo[]> {
    return this.#stream(id, signal, (host) => listFiles(host, list));
  }

  stat(id: SandboxId, target: FileTarget, signal: AbortSignal): Promise<FileInfo> {
    return this.#act(id, signal, (host) => statFile(host, target));
  }

  changeFile(id: SandboxId, change: FileChange, signal: AbortSignal): Promise<void> {
    return this.#act(id, signal, (host) => changeFile(host, change));
  }

  readTree(id: SandboxId, target: FileTarget, signal: AbortSignal): AsyncIterable<Uint8Array> {
    return this.#stream(id, signal, (host) => readTree(host, target));
  }

  writeTree(id: SandboxId, write: TreeWrite, bytes: AsyncIterable<Uint8Array>, signal: AbortSignal): Promise<void> {
    return this.#act(id, signal, (host) => writeTree(host, write, bytes));
  }

  watchFiles(id: SandboxId, watch: FileWatch, signal: AbortSignal): AsyncIterable<Uint8Array> {
    return this.#stream(id, signal, (host) => watchFiles(host, watch));
  }

  /** A sandbox does not count as idle while its files are worked on. */
  async #act<T>(id: SandboxId, signal: AbortSignal, act: (host: FilesHost) => Promise<T>): Promise<T> {
    const call = this.calling(id, signal);
    using _busy = call.driver.busy();
    try {
      return await act(await hostOf(call));
    } catch (error) {
      return await explain(error, call);
    }
  }

  async *#stream<T>(
    id: SandboxId,
    signal: AbortSignal,
    act: (host: FilesHost) => AsyncGenerator<T, void, undefined>,
  ): AsyncGenerator<T, void, undefined> {
    const call = this.calling(id, signal);
    using _busy = call.driver.busy();
    try {
      yield* act(await hostOf(call));
    } catch (error) {
      await explain(error, call);
    }
  }
}

async function hostOf({ driver, signal }: CommandCall): Promise<FilesHost> {
  const link = await driver.agent("files", signal);
  return { link, number: driver.commands.nextNumber(), user: driver.spec.user, signal };
}
