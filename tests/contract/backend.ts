import type { CreateSandbox, Sandbox } from "#sdk";
import type { NodeOptions, TestNode } from "../support/node.ts";

/** What the contract needs of a backend: nodes that run it, and sandboxes of its kind with a shell and the usual small tools. */
export interface ContractBackend {
  readonly name: string;
  /** Root of its sandboxes is root of a machine: nothing is taken from it. */
  readonly isWholeMachine?: boolean;
  /** What its nodes do not count of a sandbox, and say nothing of. */
  readonly uncounted?: ReadonlySet<"io" | "network">;
  startNode(options?: NodeOptions): Promise<TestNode>;
  create(node: TestNode, request?: Partial<CreateSandbox>): Promise<Sandbox>;
  /** Ends what runs the sandbox without a word, as a fault of the platform would. */
  crash(node: TestNode, sandbox: Sandbox): Promise<void>;
  /** What a program does for what it wrote to outlive that; absent where all of it does. */
  readonly settle?: string;
}
