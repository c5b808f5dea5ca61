import type { Controller, NodeTree } from "#host/cgroup/layout.ts";

/** Which of a node's directories count what, as `dsec-view` takes them: `memory=1:/sys/fs/cgroup/memory/dsec/n1`. Pure. */
export function viewTrees(trees: readonly NodeTree[]): readonly string[] {
  const having = (controller: Controller) => trees.find(({ tree }) => tree.controllers.has(controller));
  // Every v2 tree counts CPU time. In v1 it is there when cpu and cpuacct are one tree, as distributions mount them.
  const times = trees.find(({ tree }) => tree.version === 2) ?? having("cpu");
  const named = { memory: having("memory"), cpu: having("cpu"), pids: having("pids"), times };
  return Object.entries(named).flatMap(([name, found]) =>
    found === undefined ? [] : [`${name}=${found.tree.version}:${found.dir}`],
  );
}
