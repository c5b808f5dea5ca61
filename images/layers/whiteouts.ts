import { Inode } from "../erofs/inode.ts";

/** By this an overlay knows that a directory hides all that lower layers have in it. */
export const OPAQUE_XATTR = "trusted.overlay.opaque";
/** Its only value. */
const OPAQUE_VALUE: Uint8Array = Buffer.from("y");

/**
 * By this an overlay looks for whiteouts in a directory that only one layer has: without it, it lists them. An empty value says
 * nothing else.
 */
const ORIGIN_XATTR = "trusted.overlay.origin";

/** True for an overlay's mark that a name of the layers below is gone. */
export function isWhiteout({ content }: Inode): boolean {
  return content.type === "character-device" && content.major === 0 && content.minor === 0;
}

/** A new whiteout. */
export function whiteout(): Inode {
  const attributes = { mode: 0, uid: 0, gid: 0, mtimeS: 0, mtimeNs: 0, xattrs: undefined };
  return new Inode(attributes, { type: "character-device", major: 0, minor: 0 });
}

/** True for a directory that hides what layers below have in it. */
export function isOpaque(inode: Inode): boolean {
  return inode.attributes.xattrs?.has(OPAQUE_XATTR) ?? false;
}

/** Makes a directory hide what layers below have in it. */
export function markOpaque(inode: Inode): void {
  setXattr(inode, OPAQUE_XATTR, OPAQUE_VALUE);
}

/** Marks every directory below `root` that has a whiteout, so that no overlay lists it. The root of an overlay needs no mark. */
export function markWhiteouts(root: Inode): void {
  const waiting = [root];
  for (const inode of waiting) {
    if (inode.content.type !== "directory") continue;
    let hasWhiteout = false;
    for (const child of inode.content.children.values()) {
      if (child.content.type === "directory") waiting.push(child);
      hasWhiteout ||= isWhiteout(child);
    }
    if (hasWhiteout && inode !== root) setXattr(inode, ORIGIN_XATTR, new Uint8Array());
  }
}

function setXattr(inode: Inode, name: string, value: Uint8Array): void {
  inode.attributes = { ...inode.attributes, xattrs: new Map([...(inode.attributes.xattrs ?? []), [name, value]]) };
}
