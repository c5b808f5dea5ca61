import type { CommandId, SandboxId } from "#core/ids.ts";
import type { Node } from "#core/node.ts";

/** What is attached to, and as whom. */
export interface AttachTarget {
  readonly id: SandboxId;
  readonly node: Node;
  readonly command: CommandId;
  /** Names this attachment among those that write. */
  readonly writer: string;
}
