import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import type { Gateway } from "#host/fetch/gateway.ts";
import { hostOfImage } from "#host/fetch/image-name.ts";
import type { Credentials, RegistrySettings } from "#host/fetch/skopeo.ts";
import { copyToRegistry } from "#host/fetch/skopeo.ts";
import { typedStorageErrors } from "../durable.ts";
import { DEFAULT_LIMITS } from "../limits.ts";
import { DiskRoom } from "../room.ts";
import { type LayoutOptions, layoutArchive, writeLayout } from "./layout.ts";

/** Where an image goes in a registry. */
export interface RegistryTarget {
  /** `[registry/]repository[:tag]`. */
  readonly image: string;
  readonly credentials?: Credentials | undefined;
  readonly insecure?: boolean | undefined;
}

/** An artifact that is ready to be sent. Disposing removes what was made for it. */
export interface OpenExport extends AsyncDisposable {
  readonly bytes: AsyncIterable<Uint8Array>;
}

/**
 * Puts an artifact together as an OCI image archive, the bytes always the same: on the store's disk, since an archive names its parts
 * by what they hold. Rejects as `writeLayout` does.
 */
export async function openArchive(options: LayoutOptions): Promise<OpenExport> {
  await using stack = new AsyncDisposableStack();
  const scratch = stack.use(await options.store.scratch());
  await typedStorageErrors(() => writeLayout(scratch.dir, options));
  const held = stack.move();
  return { bytes: layoutArchive(scratch.dir, options.signal), [Symbol.asyncDispose]: () => held.disposeAsync() };
}

/** Puts an artifact into a registry as an OCI image. Rejects as `writeLayout` and `copyToRegistry` do. */
export async function exportToRegistry(
  target: RegistryTarget,
  options: LayoutOptions & { readonly registries: RegistrySettings; readonly gateway?: Gateway | undefined },
): Promise<void> {
  const { store, signal, progress, registries, gateway } = options;
  await gateway?.check(hostOfImage(target.image));
  await using scratch = await store.scratch();
  const [layout, dir] = [join(scratch.dir, "layout"), join(scratch.dir, "skopeo")];
  await mkdir(layout);
  await mkdir(dir, { mode: 0o700 });
  await typedStorageErrors(() => writeLayout(layout, { ...options, reference: "image" }));
  progress(`sending to ${target.image}`);
  const copied = copyToRegistry(
    {
      ...{ ...target, dir, signal, settings: registries, gateway },
      maxFileBytes: DEFAULT_LIMITS.dataBytes,
      onLine: progress,
      guard: () => new DiskRoom(dir).take(1),
    },
    layout,
  );
  await copied.catch((error: unknown) => {
    throw gateway?.explain(error) ?? error;
  });
}
