export type {
  ArtifactMaker,
  DebianRequest,
  ExportRequest,
  ExportToRequest,
  ImportRequest,
  Reach,
  SourceRequest,
  VmImageRequest,
} from "./artifacts.ts";
export { type Control, type ControlConfig, type ControlOptions, openControl } from "./control.ts";
export { DEFAULT_PROJECT, type Principal, type Role } from "./iam/iam.ts";
export type { Log } from "./log.ts";
export { MemoryState } from "./state/memory.ts";
export { SqliteState } from "./state/sqlite.ts";
export type { StateStore } from "./state/store.ts";
