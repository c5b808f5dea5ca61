import { type Static, Type } from "typebox";
import { ErrorBody } from "./errors.ts";
import { closed, described, LinkBytes, ModeText, oneOf, PathBytes, TextOrBytes, UserName } from "./values.ts";

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

/** What to list. `depth` counts levels; `hidden` false leaves out names that begin with a dot and what is below them. */
export const FileListQuery = closed({
  path: PathBytes,
  user: User,
  depth: Type.Optional(Type.Integer({ minimum: 1, maximum: 64 })),
  hidden: Type.Optional(Type.Boolean()),
});
/** New permission bits; a link is followed. */
export const FileModeQuery = closed({ path: PathBytes, user: User, mode: ModeText });
/** A new owner, as users are written; a link is followed. */
export const FileOwnerQuery = closed({ path: PathBytes, user: User, owner: UserName });
/** A symbolic link at `path` that says `target`. */
export const FileLinkQuery = closed({
  path: PathBytes,
  user: User,
  target: LinkBytes,
  parents: Type.Optional(Type.Boolean()),
});
/** A new name. `replace` (true unless said otherwise) lets it take the place of a file, or of an empty directory. */
export const FileMoveQuery = closed({
  path: PathBytes,
  user: User,
  to: PathBytes,
  replace: Type.Optional(Type.Boolean()),
  parents: Type.Optional(Type.Boolean()),
});

/** Where to unpack. `owners`: entries get the owners that the archive names, true unless said otherwise. */
export const TreeWriteQuery = closed({ path: PathBytes, user: User, owners: Type.Optional(Type.Boolean()) });

/** What to watch; `recursive`: directories below as well, those to come included. */
export const WatchQuery = closed({ path: PathBytes, user: User, recursive: Type.Optional(Type.Boolean()) });

/** One entry, links as links. */
export const FileView = closed({
  name: described(TextOrBytes, "In a list with a depth: the path below the directory that was listed."),
  type: oneOf(["file", "directory", "symlink", "fifo", "socket", "character-device", "block-device"]),
  mode: Type.Integer({ description: "Permission bits." }),
  uid: Type.Integer(),
  gid: Type.Integer(),
  size: Type.Number(),
  mtimeMs: Type.Number(),
  mtimeNs: Type.String({
    pattern: "^-?\\d+$",
    description: "The same time in nanoseconds, which a number cannot hold.",
  }),
  target: Type.Optional(TextOrBytes),
});
export type FileView = Static<typeof FileView>;

/** What arrived: compare it with what was sent. */
export const FileWrittenView = closed({ size: Type.Number(), sha256: Type.String({ pattern: "^[0-9a-f]{64}$" }) });
export type FileWrittenView = Static<typeof FileWrittenView>;

/** What an archive held: compare it with what was sent. */
export const TreeWrittenView = closed({
  entries: Type.Integer(),
  size: Type.Number({ description: "Bytes of the archive." }),
  sha256: Type.String({ pattern: "^[0-9a-f]{64}$", description: "Of the archive." }),
});
export type TreeWrittenView = Static<typeof TreeWrittenView>;

/** What happened; paths are below what is watched. `overflow`: more than was kept, look at the files themselves. */
export const WatchView = closed({
  type: oneOf(["ready", "created", "modified", "removed", "moved", "attributes", "overflow"]),
  path: Type.Optional(described(TextOrBytes, "Empty: what is watched itself, whose removal is the last event.")),
  from: Type.Optional(described(TextOrBytes, "Of what was moved: its path before.")),
  directory: Type.Optional(Type.Boolean()),
});
export type WatchView = Static<typeof WatchView>;

/** One line of a watch. */
export const WatchLine = Type.Union([WatchView, ErrorBody]);
