/**
 * Words before a command line: the program and all it starts live in namespaces of their own, so that whatever they mount and
 * leave behind goes away with them, however they end, and they end with this process.
 */
export const OWN_WORLD: readonly string[] = [
  ...["setpriv", "--pdeathsig", "KILL", "--"],
  ...["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc", "--"],
];
