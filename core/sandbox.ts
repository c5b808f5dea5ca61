import type { CommandId, SandboxId } from "#core/ids.ts";
import type { SandboxState } from "#core/lifecycle.ts";

/** The backends a sandbox may ask for. */
export const BACKEND_KINDS = ["container", "microvm", "vm"] as const;
export type BackendKind = (typeof BACKEND_KINDS)[number];

/** Parts of an environment that are trees of files. */
export const TREE_KINDS = ["base", "workspace", "toolkit", "snapshot"] as const;
/** What part of an environment an artifact is. A `vm-image` is the disk of a full virtual machine. */
export const ARTIFACT_KINDS = [...TREE_KINDS, "vm-image"] as const;
export type ArtifactKind = (typeof ARTIFACT_KINDS)[number];

/** One read-only EROFS layer, named by the SHA-256 of its image: `sha256:<64 hex>`. */
export type LayerDigest = string & { readonly __brand: "LayerDigest" };

/** Limits of one sandbox. The node enforces each or refuses it by name; none is ever ignored. */
export interface Resources {
  /** Processor time as a multiple of one core; fractions allowed. */
  readonly cpus: number;
  readonly memoryMiB: number;
  /** Swap on top of the memory. */
  readonly swapMiB: number;
  /** Processes and threads of everything the agent starts. */
  readonly pids: number;
  /** Bytes the sandbox may write; `undefined` means that the volume alone bounds it. */
  readonly diskMiB: number | undefined;
}

/** What a create leaves unsaid. The reply echoes what is in force. */
export const DEFAULT_RESOURCES: Resources = { cpus: 1, memoryMiB: 512, swapMiB: 0, pids: 512, diskMiB: undefined };

/** One limit of setrlimit(2), in the unit of its resource. */
export interface Rlimit {
  readonly soft: number;
  readonly hard: number;
}
/** The limits a sandbox may set, without their RLIMIT_ prefix. */
export const RLIMIT_NAMES = ["core", "cpu", "data", "fsize", "memlock", "nofile", "nproc", "stack"] as const;
export type RlimitName = (typeof RLIMIT_NAMES)[number];

/** What an artifact says about running in it; later parts of an environment override earlier ones. */
export interface ImageConfig {
  readonly env: Readonly<Record<string, string>>;
  readonly user: string | undefined;
  readonly workdir: string | undefined;
  readonly image?: ImageNotes;
  /** Of a `vm-image`. */
  readonly computer?: ComputerShape;
}

/** What starts a full virtual machine. */
export const FIRMWARES = ["bios", "uefi"] as const;
/** `virtio`: devices for systems that know they are in a machine. `emulated`: those of a PC, for old and odd ones. */
export const DEVICE_PROFILES = ["virtio", "emulated"] as const;

/** What a full virtual machine is made of, beside its limits. */
export interface ComputerShape {
  readonly firmware: (typeof FIRMWARES)[number];
  readonly devices: (typeof DEVICE_PROFILES)[number];
  /** Its system runs the agent as a service: all calls about what is inside work. */
  readonly agent?: boolean;
}

/** What an image says to those who run images; sandboxes do not act on it. */
export interface ImageNotes {
  readonly labels?: Readonly<Record<string, string>>;
  readonly command?: readonly string[];
  readonly entrypoint?: readonly string[];
}

/** Time limits of a sandbox, enforced by its node. Zero or less is refused; `undefined` means no limit. */
export interface Lifetime {
  /** Counts while nothing runs in it and nobody talks to it. */
  readonly idleTimeoutMs: number | undefined;
  /** Counts from creation. */
  readonly maxLifetimeMs: number | undefined;
}

/** Everything a node needs to make one sandbox. References are resolved: digests, no names. */
export interface SandboxSpec {
  readonly id: SandboxId;
  readonly project: string;
  readonly backend: BackendKind;
  /** Lowest first: the base's layers, then the workspace's, then each toolkit's. */
  readonly layers: readonly LayerDigest[];
  readonly config: ImageConfig;
  readonly hostname: string;
  readonly env: Readonly<Record<string, string>>;
  /** Who commands run as unless they say otherwise: a name or a number, optionally `user:group`. */
  readonly user: string;
  readonly workdir: string;
  readonly resources: Resources;
  readonly rlimits: Readonly<Partial<Record<RlimitName, Rlimit>>>;
  readonly lifetime: Lifetime;
  readonly labels: Readonly<Record<string, string>>;
  /** Of the backend `vm`, always. */
  readonly computer?: ComputerShape | undefined;
  /** Its agent makes cells, in which functions run; nothing of it can be written to then. No user can ask for it. */
  readonly cells?: boolean | undefined;
  /** The sandbox that it was forked from, which may be gone. */
  readonly parent?: SandboxId | undefined;
  /** What the user asked for (`debian:latest`, …), for people to read. */
  readonly origin: {
    readonly base: string;
    readonly workspace: string | undefined;
    readonly toolkits: readonly string[];
    /** What those names meant at that moment, in the order of the stack; undefined: the sandbox is older than this. */
    readonly artifacts?: readonly { readonly reference: string; readonly digest: string }[];
  };
}

/** How the processors of a machine run: by the node's own, or in software, which is ten to thirty times slower. */
export const ACCELERATORS = ["kvm", "tcg"] as const;
export type Accelerator = (typeof ACCELERATORS)[number];

/** What a node tells about a sandbox. */
export interface SandboxInfo {
  readonly spec: SandboxSpec;
  readonly state: SandboxState;
  /** Rises with every change of state: compare generations, never clocks. */
  readonly generation: number;
  readonly createdAtMs: number;
  readonly readyAtMs: number | undefined;
  readonly lastActivityAtMs: number;
  /** Why it is `failed` or on its way out, in words. */
  readonly reason: string | undefined;
  readonly runningCommands: number;
  /** What runs the processors of its machine; undefined for what has no machine, and before there is one. */
  readonly accelerator?: Accelerator | undefined;
}

/** How a command ended. There is no default: each is observed. */
export type ExitCause =
  | "exited"
  | "signaled"
  | "timeout"
  | "out-of-memory"
  /** Of a line: its session ended before it ran. */
  | "session-ended"
  | "sandbox-stopped"
  | "agent-lost";

/** The end of a command: why, with what, and what it took. */
export interface ExitStatus {
  readonly cause: ExitCause;
  /** Present exactly when the leader exited by itself. */
  readonly code: number | undefined;
  /** `SIGKILL`, …: present exactly when a signal ended the leader. */
  readonly signal: string | undefined;
  readonly wallMs: number;
  readonly cpuMs: number;
  /** 0 of a line: its processes are not told apart from those of the session. */
  readonly maxRssKiB: number;
  /** Of a line: its session ended together with it. */
  readonly sessionEnded?: true;
}

/** The two output streams of a command, never merged. */
export type OutputStream = "stdout" | "stderr";

/** How far an output stream is, in bytes from its start. */
export interface StreamInfo {
  /** Bytes the command wrote so far. */
  readonly seen: number;
  /** Bytes of those that can be read back. */
  readonly kept: number;
  /** True when bytes in the middle were dropped to hold the cap. */
  readonly truncated: boolean;
  /** True when nobody in the sandbox holds the stream any more. */
  readonly ended: boolean;
}

/** The size of a terminal in characters, each from 1 to 65,535. */
export interface TerminalSize {
  readonly rows: number;
  readonly cols: number;
}

/** A program to run. Text is UTF-8; bytes that are not go as `Uint8Array`. */
export interface CommandSpec {
  readonly argv: readonly (string | Uint8Array)[];
  /** Added to, and overriding, the sandbox's environment. */
  readonly env: Readonly<Record<string, string>>;
  readonly cwd: string | undefined;
  readonly user: string | undefined;
  readonly stdin: "none" | "pipe";
  /** The program runs on a terminal of this size: it is its input, where it has one, and all its output comes as stdout. */
  readonly terminal: TerminalSize | undefined;
  readonly timeLimitMs: number | undefined;
  /** What whoever waits for its end waits for: the leader alone, or that nobody holds its outputs either. */
  readonly waitFor: WaitFor;
  /** Bytes of each stream that stay readable; the middle of more is dropped and counted. */
  readonly outputCapBytes: number | undefined;
  readonly idempotencyKey: string | undefined;
  /** Its argv is the text of a line then; a line runs as its session does, with its own streams and limits. */
  readonly session?: SessionPart | undefined;
}

/** `leader`: the process that was started. `pipes`: that process, and every other one that holds its stdout or stderr. */
export type WaitFor = "leader" | "pipes";

/** What a command is to a session: its shell, or a line for it. */
export interface SessionPart {
  /** Empty: the id of the shell's command. */
  readonly name: string;
  readonly role: "shell" | "line";
}

/** A persistent shell of the platform. Lines are commands with `session`, and run as it does. */
export interface SessionSpec {
  /** Unique among the live sessions of a sandbox; undefined: made up. */
  readonly name: string | undefined;
  readonly env: Readonly<Record<string, string>>;
  readonly cwd: string | undefined;
  readonly user: string | undefined;
  readonly idempotencyKey: string | undefined;
}

/** What a node tells about a session. */
export interface SessionInfo {
  /** Of the command that its shell is. What the shell says between lines is the output of that. */
  readonly id: CommandId;
  readonly name: string;
  /** Of the shell, as seen inside the sandbox. */
  readonly pid: number;
  readonly startedAtMs: number;
  /** How the shell ended; undefined: it lives. */
  readonly status: ExitStatus | undefined;
}

/** What a node tells about a command; `status` undefined: it runs. */
export interface CommandInfo {
  readonly id: CommandId;
  readonly argv: readonly (string | Uint8Array)[];
  /** Process id as seen inside the sandbox. */
  readonly pid: number;
  /** The size it was started with; undefined: it has no terminal. */
  readonly terminal: TerminalSize | undefined;
  readonly waitFor: WaitFor;
  readonly startedAtMs: number;
  readonly status: ExitStatus | undefined;
  readonly stdout: StreamInfo;
  readonly stderr: StreamInfo;
  /** The session that it is a line of. */
  readonly session?: string | undefined;
}

/** What stat(2) calls the format of a file. */
export type FileType = "file" | "directory" | "symlink" | "fifo" | "socket" | "character-device" | "block-device";

/** One file as a sandbox sees it, ids as inside it. */
export interface FileInfo {
  /** The entry's own name, or its path below the directory that was listed. Bytes: Linux names need not be UTF-8. */
  readonly name: Uint8Array;
  readonly type: FileType;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly size: number;
  /** Last change of the contents, nanoseconds since 1970. */
  readonly mtimeNs: bigint;
  /** Where a symbolic link points, unresolved. */
  readonly target: Uint8Array | undefined;
}
