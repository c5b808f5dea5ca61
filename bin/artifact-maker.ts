import type {
  ArtifactMaker,
  DebianRequest,
  ExportRequest,
  ImportRequest,
  Reach,
  SourceRequest,
  VmImageRequest,
} from "#control/index.ts";
import type { Clock } from "#core/clock.ts";
import { Turns } from "#core/concurrency/turns.ts";
import { SandboxError } from "#core/errors.ts";
import { sweepDebianBuilds } from "#host/debian.ts";
import { type Gateway, openGateway } from "#host/fetch/gateway.ts";
import type { OpenNetworks } from "#host/fetch/internal.ts";
import type { RegistrySettings } from "#host/fetch/skopeo.ts";
import { HOST_BUSYBOX, hostBusybox } from "#images/bases/busybox.ts";
import { buildDebian } from "#images/bases/debian.ts";
import type { NewArtifact } from "#images/catalogue.ts";
import { collectGarbage, findGarbage } from "#images/collect.ts";
import type { LayerPlaces } from "#images/export/content.ts";
import { exportToRegistry, openArchive } from "#images/export/export.ts";
import type { LayoutOptions } from "#images/export/layout.ts";
import { type ImportedArtifact, importArtifact } from "#images/import.ts";
import { collapseLayers } from "#images/layers/collapse.ts";
import type { LayerMounts } from "#images/layers/mounts.ts";
import { parsePlace, placeLayers } from "#images/place.ts";
import { importFrom } from "#images/sources/import-from.ts";
import type { ObjectStore } from "#images/store/object-store.ts";
import type { LayerStore } from "#images/store.ts";
import { buildVmImage } from "#images/vm-image/build.ts";
import { importVmImage } from "#images/vm-image/import.ts";

/** A layer gets its name in the catalogue only after it is in the store; younger ones are left alone for so long. */
const NEW_LAYER_MS = 60 * 60_000;

/** Artifacts made at a time: each may hold some hundred MiB of names and inodes, and a processor. Others wait. */
const MAKING_AT_A_TIME = 4;

/** What artifacts are made with. */
export interface MakerParts {
  readonly store: LayerStore;
  readonly mounts: Pick<LayerMounts, "unmountUnused" | "report">;
  /** The store that nodes share, if there is one. */
  readonly objects: ObjectStore | undefined;
  readonly registries: RegistrySettings;
  /** Networks of this node's own from which it fetches for everybody; `any`: all of them. */
  readonly fetchNetworks: OpenNetworks | "any";
  /** Neighbouring layers of an artifact become one as long as they are together no larger than this. */
  readonly collapseBytes: number;
  /** Whose rights programs take that read what is hostile; no sandbox has it. */
  readonly helperUid: number;
  /** What systems of full virtual machines are built with. */
  readonly system: { readonly guestDir: string; readonly agent: string; readonly shell: string };
}

/**
 * Makes artifacts in the node's own store. The suite `host-busybox` stands for a tree of this machine's static busybox.
 * Disposing waits for what is under way, whose callers have left: nothing of it is left then.
 */
export async function openArtifactMaker(
  { store, objects, mounts, registries, fetchNetworks, collapseBytes, helperUid, system }: MakerParts,
  clock: Clock,
): Promise<ArtifactMaker & AsyncDisposable> {
  await sweepDebianBuilds();
  const underWay = new Set<Promise<unknown>>();
  const turns = new Turns(MAKING_AT_A_TIME);
  const make = async <T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> => {
    const made = turns.run(signal, work);
    underWay.add(made);
    try {
      return await made;
    } finally {
      underWay.delete(made);
    }
  };
  const finish = async (at: string | undefined, work: () => Promise<NewArtifact>): Promise<NewArtifact> => {
    // A bad path shows before anything is fetched.
    const place = at === undefined ? [] : parsePlace(at);
    const artifact = await work();
    const placed = await placeLayers(store, artifact.layers, place);
    return { ...artifact, layers: await collapseLayers(store, placed, collapseBytes) };
  };
  return {
    importArchive: (request) => make(request.signal, () => finish(request.at, () => importArchive(store, request))),
    importVmImage: (request) => make(request.signal, () => importVm(store, request, helperUid)),
    importFrom: (request) =>
      make(request.signal, () =>
        finish(request.at, () => fetchArtifact({ store, registries, fetchNetworks }, request)),
      ),
    openExport: (request) => make(request.signal, () => openArchive(layoutOptions({ store, objects }, request))),
    exportToRegistry: (request) =>
      make(request.signal, async () => {
        await using gateway = await gatewayFor(request.reach, fetchNetworks);
        const { progress, target } = request;
        await exportToRegistry(target, {
          ...layoutOptions({ store, objects }, request),
          progress,
          registries,
          gateway,
        });
      }),
    buildDebian: (request) => make(request.signal, () => build(store, request, system)),
    layers: (digests) => mounts.report(digests),
    async collect(keep) {
      // Before their files go: a mount would hold the space of what is removed.
      mounts.unmountUnused(keep);
      return await collectGarbage(store, keep, { addedBeforeMs: clock.now() - NEW_LAYER_MS });
    },
    garbage: (keep) => findGarbage(store, keep, { addedBeforeMs: clock.now() - NEW_LAYER_MS }),
    async [Symbol.asyncDispose]() {
      await Promise.allSettled(underWay);
    },
  };
}

async function importArchive(store: LayerStore, request: ImportRequest): Promise<NewArtifact> {
  const { kind, format, source, signal } = request;
  const imported = await importArtifact({ store, source, format, kind, signal });
  return artifactOf(imported, kind, `${format} upload`);
}

async function importVm(
  store: LayerStore,
  { shape, source, signal }: VmImageRequest,
  uid: number,
): Promise<NewArtifact> {
  const { layers, sizeBytes, format } = await importVmImage({ store, source, uid, signal });
  const config = { env: {}, user: undefined, workdir: undefined, computer: shape };
  return { kind: "vm-image", layers, config, sizeBytes, provenance: `${format} upload` };
}

function layoutOptions(places: LayerPlaces, { artifact, compression, signal }: ExportRequest): LayoutOptions {
  const { config, layers, name, tag } = artifact;
  return { ...places, layers, config, reference: `${name}:${tag}`, compression, signal, progress: () => undefined };
}

async function fetchArtifact(
  { store, registries, fetchNetworks }: Pick<MakerParts, "store" | "registries" | "fetchNetworks">,
  { kind, source, reach, signal, progress }: SourceRequest,
): Promise<NewArtifact> {
  await using gateway = source.type === "apt" ? undefined : await gatewayFor(reach, fetchNetworks);
  const imported = await importFrom(source, { store, registries, gateway, kind, signal, progress });
  return artifactOf(imported, kind, imported.provenance);
}

/** Undefined for those who may reach everything. */
async function gatewayFor(reach: Reach, networks: MakerParts["fetchNetworks"]): Promise<Gateway | undefined> {
  return reach === "anywhere" || networks === "any" ? undefined : await openGateway(networks);
}

/** A system that starts by a kernel of its own, whatever the firmware. */
async function buildVm(store: LayerStore, request: DebianRequest, system: MakerParts["system"]): Promise<NewArtifact> {
  const { kind, suite, include, desktop, signal, progress } = request;
  const debian = suite === HOST_BUSYBOX ? undefined : { suite, include, desktop };
  const { layers, sizeBytes } = await buildVmImage({ store, ...system, debian, signal, progress });
  const computer = { firmware: "bios", devices: "virtio", agent: true } as const;
  const config = { env: {}, user: undefined, workdir: undefined, computer };
  return {
    kind,
    layers,
    config,
    sizeBytes,
    provenance: `${suite ?? "debian"} with the agent${desktop ? " and a desktop" : ""}`,
  };
}

async function build(store: LayerStore, request: DebianRequest, system: MakerParts["system"]): Promise<NewArtifact> {
  const { kind, suite, include, desktop, signal } = request;
  if (suite === HOST_BUSYBOX && (include.length > 0 || desktop)) {
    throw new SandboxError("InvalidArgument", `${HOST_BUSYBOX} has no packages and no desktop`, {
      hint: "name a suite of Debian, or none",
    });
  }
  if (kind === "vm-image") return await buildVm(store, request, system);
  if (suite === HOST_BUSYBOX) {
    return artifactOf(await hostBusybox(store, signal), kind, "the busybox of this machine");
  }
  const built = await buildDebian({ store, ...debianOptions(request) });
  return artifactOf(built, kind, ["debian", built.suite, ...include].join(" "));
}

function debianOptions({ suite, include, signal, progress }: DebianRequest) {
  return { include, signal, progress, ...(suite === undefined ? {} : { suite }) };
}

function artifactOf(
  imported: Omit<ImportedArtifact, "receivedBytes">,
  kind: NewArtifact["kind"],
  provenance: string,
): NewArtifact {
  const { layers, config, sizeBytes } = imported;
  return { kind, layers, config, sizeBytes, provenance };
}
