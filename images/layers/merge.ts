import type { ByteString } from "#core/tar/entry.ts";
import { Inode } from "../erofs/inode.ts";
import { isOpaque, isWhiteout, markOpaque } from "./whiteouts.ts";

type Directory = ReadonlyMap<ByteString, Inode>;

/**
 * The tree of one layer that does what `upper` over `lower` does, wherever in a stack they stood: it hides what they hid of layers
 * below. Both trees give their inodes away. Deep trees are no danger: nothing here calls itself.
 */
export function mergeTrees(lower: Inode, upper: Inode): Inode {
  const root = mergedDirectory(lower, upper);
  const waiting = [{ into: root, lower, upper }];
  for (const step of waiting) {
    const [below, above] = [childrenOf(step.lower), childrenOf(step.upper)];
    const isHidden = isOpaque(step.into);
    for (const [name, child] of below) if (!above.has(name)) put(step.into, name, child, isHidden);
    for (const [name, child] of above) {
      const under = below.get(name);
      if (under !== undefined && continues(under, child)) {
        const into = mergedDirectory(under, child);
        put(step.into, name, into, isHidden);
        waiting.push({ into, lower: under, upper: child });
      } else {
        // What the lower layer has there ends the search for more below: so must the directory that takes its place.
        if (under !== undefined && child.content.type === "directory" && !isOpaque(child)) markOpaque(child);
        put(step.into, name, child, isHidden);
      }
    }
  }
  return root;
}

/** True when an overlay shows the two as one directory. */
function continues(lower: Inode, upper: Inode): boolean {
  return lower.content.type === "directory" && upper.content.type === "directory" && !isOpaque(upper);
}

function mergedDirectory(lower: Inode, upper: Inode): Inode {
  const inode = new Inode(upper.attributes, { type: "directory", children: new Map() });
  if (isOpaque(lower) && !isOpaque(upper)) markOpaque(inode);
  return inode;
}

/** In a directory that hides all below it, a whiteout has nothing left to hide. */
function put(directory: Inode, name: ByteString, child: Inode, isHidden: boolean): void {
  if (directory.content.type !== "directory" || (isHidden && isWhiteout(child))) return;
  directory.content.children.set(name, child);
}

function childrenOf(inode: Inode): Directory {
  return inode.content.type === "directory" ? inode.content.children : new Map();
}
