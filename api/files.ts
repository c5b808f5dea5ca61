import { type Static, Type } from "typebox";
import { closed, ModeText, oneOf, PathBytes, TextOrBytes, UserName } from "./values.ts";

const Offset = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER });
const User = Type.Optional(UserName);

/** A path, and whose rights to use; the sandbox's user unless said otherwise. */
export const FileQuery = closed({ path: PathBytes, user: User });
/** A part of a file. */
export const FileReadQuery = closed({
  path: PathBytes,
  user: User,
  offset: Type.Optional(Offset),
  length: Type.Optional(Offset),
});
/** Where to write, or to make a directory. `parents` makes missing directories on the way. */
export const FileWriteQuery = closed({
  path: PathBytes,
  user: User,
  mode: Type.Optional(ModeText),
  parents: Type.Optional(Type.Boolean()),
});
/** What to remove; `recursive` removes trees and never follows a link. */
export const FileRemoveQuery = closed({ path: PathBytes, user: User, recursive: Type.Optional(Type.Boolean()) });

/** One entry, links as links. */
export const FileView = closed({
  name: TextOrBytes,
  type: oneOf(["file", "directory", "symlink", "fifo", "socket", "character-device", "block-device"]),
  mode: Type.Integer({ description: "Permission bits." }),
  uid: Type.Integer(),
  gid: Type.Integer(),
  size: Type.Number(),
  mtimeMs: Type.Number(),
  target: Type.Optional(TextOrBytes),
});
export type FileView = Static<typeof FileView>;

/** The entries of a directory, without `.` and `..`. */
export const FileList = closed({ entries: Type.Array(FileView) });
export type FileList = Static<typeof FileList>;

/** What arrived: compare it with what was sent. */
export const FileWrittenView = closed({ size: Type.Number(), sha256: Type.String({ pattern: "^[0-9a-f]{64}$" }) });
export type FileWrittenView = Static<typeof FileWrittenView>;
