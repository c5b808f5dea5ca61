import { existsSync, realpathSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { hasCode } from "#core/errors.ts";
import type { MountEntry } from "#host/sys/mountinfo.ts";

/**
 * Everything that a monitor could reach by name stays outside. Its user is taken on by QEMU itself, when it has opened what it needs. What is unmounted on the host later goes
 * here, too, where hosts let that through.
 */
export const APART = ["unshare", "--mount", "--propagation", "slave", "--net", "--ipc", "--uts", "--"];
/** Detaches the mounts that each word up to `--` quotes, then becomes the program behind. */
const LEAVE =
  'while [ "$1" != -- ]; do eval "umount --lazy --no-mtab --no-canonicalize $1" 2>/dev/null; shift; done; shift; exec "$@"';
/** Linux takes no longer word than 128 KiB, and 2 MiB of all together. */
const [WORD_BYTES, WORDS_BYTES] = [64 * 1024, 1024 * 1024];
/** Where a system has what programs need. */
const SYSTEM = ["/usr/", "/bin/", "/sbin/", "/lib/", "/lib64/", "/etc/", "/dev/", "/proc/", "/sys/"];

/**
 * What of a disk or a file is mounted on the host, and is or holds nothing that these words name, nor a system's programs: a copy of it would keep that disk busy for as long
 * as the machine lives. None where a word leads nobody knows where.
 */
export function needlessMounts(words: readonly string[], mounts: readonly MountEntry[]): readonly string[] {
  const paths = words.flatMap(pathsIn).map(realPath);
  if (paths.includes(undefined)) return [];
  const needed = [...paths.map((path) => `${path}/`), ...SYSTEM].join("\n");
  return mounts
    .filter(({ source, target }) => source.startsWith("/") && target !== "/" && !needed.includes(`${target}/`))
    .map(({ target }) => target);
}

/** Words before a program in a mount namespace of its own, which leave these mounts; those that have no room in a command line stay. */
export function leaving(targets: readonly string[]): readonly string[] {
  const words: string[] = [];
  let [word, bytes] = ["", 0];
  for (const target of targets.map(quoted)) {
    bytes += Buffer.byteLength(target) + 1;
    if (bytes > WORDS_BYTES) break;
    if (Buffer.byteLength(word) + Buffer.byteLength(target) > WORD_BYTES) {
      words.push(word);
      word = "";
    }
    word += ` ${target}`;
  }
  if (word !== "") words.push(word);
  return ["sh", "-c", LEAVE, "sh", ...words, "--"];
}

/** A comma in a path is doubled. */
function pathsIn(word: string): readonly string[] {
  const parts = word.replaceAll(",,", "\0").split(/[=,:]/);
  return parts.filter((part) => part.startsWith("/")).map((part) => part.replaceAll("\0", ","));
}

/** Sockets are not there yet. */
function realPath(path: string): string | undefined {
  try {
    return existsSync(path) ? realpathSync(path) : join(realpathSync(dirname(path)), basename(path));
  } catch (error) {
    if (hasCode(error, "ENOENT", "ENOTDIR")) return undefined;
    throw error;
  }
}

function quoted(word: string): string {
  return `'${word.replaceAll("'", "'\\''")}'`;
}
