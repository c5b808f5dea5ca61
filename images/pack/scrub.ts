import type { ScrubRule } from "#core/packing.ts";

/**
 * What each rule leaves out. Wherever programs put it: a home may be anywhere in a sandbox. Deletions stay, whatever they delete.
 */
export const SCRUB_PATTERNS: Readonly<Record<ScrubRule, readonly string[]>> = {
  credentials: [
    ".netrc",
    ".git-credentials",
    ".pgpass",
    ".my.cnf",
    ".pypirc",
    ".vault-token",
    "**/.aws/credentials",
    "**/.aws/cli",
    "**/.aws/sso",
    "**/.azure",
    "**/.cargo/credentials*",
    "**/.config/gcloud",
    "**/.config/gh/hosts.yml",
    "**/.config/git/credentials",
    "**/.docker/config.json",
    "**/.gnupg/private-keys-v1.d",
    "**/.kube/config",
    "**/.ssh/id_*",
    "**/.ssh/*.pem",
    "root/.npmrc",
    "home/*/.npmrc",
    "**/.claude/.credentials.json",
    "**/.codex/auth.json",
  ],
  history: [
    ".bash_history",
    ".zsh_history",
    ".ash_history",
    ".sh_history",
    "fish_history",
    ".python_history",
    ".node_repl_history",
    ".psql_history",
    ".mysql_history",
    ".sqlite_history",
    ".rediscli_history",
    ".lesshst",
    ".viminfo",
    ".wget-hsts",
    "**/.claude/projects",
    "**/.claude/history.jsonl",
    "**/.codex/sessions",
    "**/.codex/history.jsonl",
  ],
};

/** Exceptions: public by their nature. */
export const NEVER_SCRUBBED: readonly string[] = ["**/.ssh/*.pub"];
