import { openBtrfsUppers } from "./btrfs-uppers.ts";
import { openDirectoryUppers } from "./directory-uppers.ts";
import { mountImage } from "./image.ts";

/**
 * Where sandboxes write: one *upper* for each, made of the two directories that overlay needs. With a quota-bearing volume
 * an upper has a limit of its own, so that a full sandbox gets ENOSPC or EDQUOT alone. Nothing is kept in memory that a
 * restarted node would miss: uppers are found by `list`.
 */
export interface Volume extends AsyncDisposable {
  readonly kind: "btrfs" | "directory";
  readonly supportsLimits: boolean;
  /** Why limits are not supported, for people. */
  readonly reason: string | undefined;
  /**
   * Makes an empty upper. Throws `InvalidArgument` for a limit below the least that works, `FailedPrecondition` for any where
   * limits are not supported, `AlreadyExists`, `StorageFull`. What it throws for leaves nothing.
   */
  createUpper(id: string, limitBytes: number | undefined): Upper;
  /**
   * Gives an upper that was made without a limit, and that nobody has written to, the id and the limit of a sandbox. Throws what
   * `createUpper` throws; what is left then has one of the two ids.
   */
  renameUpper(from: string, id: string, limitBytes: number | undefined): Upper;
  /** Removes an upper and everything in it. Safe twice, and for unknown ids. Never follows what the sandbox left there. */
  removeUpper(id: string): Promise<void>;
  /** Throws what `createUpper` would throw for this limit. */
  checkLimit(limitBytes: number | undefined): void;
  /** Whether a reading is a copy, made in a moment, that shares the data of the upper. Else it is the upper itself. */
  readonly copies: boolean;
  /**
   * What an upper holds at one moment, to be read and copied. `still` is asked to hold its writers for that: as short as can be where
   * there are copies, else until the reading is disposed. Rejects with `NotFound`, `StorageFull`, `FailedPrecondition` for an upper of
   * an earlier release, and as `still` does.
   */
  readUpper(id: string, still?: Still): Promise<UpperReading>;
  /** One that is there. Does not look. */
  openUpper(id: string): Upper;
  /** Holds files with which files of uppers may share their data, made by the first who needs it; undefined where they cannot. */
  readonly sharedDir: string | undefined;
  list(): ReadonlySet<string>;
  /**
   * Bytes that an upper holds, file system structures included; `undefined` when nobody counts them. A copy has what it wrote itself. On kernels without simple
   * quotas (before 6.7) a copy that was copied has none of what it shares with that.
   */
  usage(id: string): number | undefined;
}

/** The two directories that overlay takes; both on one file system. Files in it have the ids that the sandbox sees: 0 to 65,535. */
export interface Upper {
  readonly upperDir: string;
  readonly workDir: string;
}

/** Holds those who write to an upper. */
export interface Still {
  /** Resolves when nobody writes any more. */
  hold(): Promise<void>;
  /** Called once after each hold that resolved, whatever happened then. */
  letGo(): void;
}

/** The files of an upper; disposing lets go of them. */
export interface UpperReading extends AsyncDisposable {
  /** Their root directory. */
  readonly dir: string;
  /** Of a copy: what it was made of, where files have the same numbers, and a time before that. Writers were held already, if they were. */
  readonly source: { readonly dir: string; readonly atMs: number } | undefined;
  /**
   * Makes an upper of them, which shares their data, with a limit for what is written into it from now on. Rejects as `createUpper`
   * throws, and with `FailedPrecondition` where the volume has no copies. There is a whole one, or none.
   */
  copyTo(id: string, limitBytes: number | undefined): Promise<void>;
}

/** Where a volume lives. */
export interface VolumeOptions {
  /** Holds the volume's image; survives a reboot. */
  readonly dataDir: string;
  /** Holds the mount. */
  readonly runDir: string;
  /** Size of the image, which is sparse. 0 asks for a plain directory. An existing image grows, and never shrinks. */
  readonly sizeMiB: number;
}

/**
 * Opens the node's volume: a btrfs image, adopted when it is mounted already; a plain directory where this host cannot have
 * one. Disposing unmounts it when no upper is left in it.
 */
export async function openVolume(options: VolumeOptions): Promise<Volume> {
  if (options.sizeMiB === 0) return openDirectoryUppers(options.dataDir, "the size of the volume is set to 0");
  const mounted = await mountImage(options);
  return "reason" in mounted
    ? openDirectoryUppers(options.dataDir, mounted.reason)
    : await openBtrfsUppers(mounted.path);
}
