import { badInput, shown } from "./entry.ts";
import type { ByteString, Inode } from "./erofs/inode.ts";
import { components } from "./path.ts";

/** As many links as the kernel follows in one path. */
const MAX_LINKS = 40;

/**
 * Where a path of directories leads when links on the way are followed as the kernel does it in a root of its own: `/` and
 * `..` never leave that root. `look` gives what is at a path without links. Pure; refuses loops.
 */
export function follow(
  parts: readonly ByteString[],
  look: (parts: readonly ByteString[]) => Inode | undefined,
): readonly ByteString[] {
  const rest = [...parts];
  let [real, links]: [ByteString[], number] = [[], 0];
  for (let part = rest.shift(); part !== undefined; part = rest.shift()) {
    if (part === "" || part === ".") continue;
    if (part === "..") {
      real.pop();
      continue;
    }
    const content = look([...real, part])?.content;
    if (content?.type !== "symlink") {
      real.push(part);
      continue;
    }
    links += 1;
    if (links > MAX_LINKS) throw badInput(`${shown(parts.join("/"))} leads through too many symbolic links`);
    if (content.target.startsWith("/")) real = [];
    rest.unshift(...content.target.split("/"));
  }
  // A link may name what no path may hold.
  return links === 0 ? parts : components(real.join("/"));
}
