import { SandboxError } from "#core/errors.ts";

/**
 * One table an executable: types, `--help`, names in the environment and keys of the config file all come from it.
 * A flag beats the environment, the environment beats the file, the file beats the table. A key nobody knows is an error.
 * Nothing here touches the process: arguments, environment and file text are passed in.
 */
export interface Setting<T> {
  /** What stands for the value in the help; undefined for a flag that takes none. */
  readonly placeholder: string | undefined;
  readonly help: string;
  /** The default as a user would write it; undefined means unset. */
  readonly fallback: string | undefined;
  /** Throws a plain `Error` that says what would have been right. Numbers and booleans come from config files. */
  readonly parse: (raw: RawValue) => T;
}

/** A value before its setting has looked at it. */
export type RawValue = string | number | boolean;
/** One executable's settings by name; names are camelCase. */
export type SettingsTable = Readonly<Record<string, Setting<unknown>>>;
/** The values that a table yields. */
export type SettingsOf<T extends SettingsTable> = {
  readonly [K in keyof T]: T[K] extends Setting<infer V> ? V : never;
};

/** Where values come from. `file` is the text of a JSON config file and the name to blame in errors. */
export interface SettingsSources {
  readonly argv?: readonly string[];
  readonly env?: Readonly<Record<string, string | undefined>>;
  readonly file?: { readonly name: string; readonly text: string } | undefined;
}

/** Loads the values of a table; throws `InvalidArgument` that names the key and where it was set. */
export interface SettingsLoader<T extends SettingsTable> {
  (sources: SettingsSources): SettingsOf<T>;
  readonly table: T;
  /** One line a setting: flag, meaning, default, name in the environment. */
  help(): string;
}

/** How a table sits among others. */
export interface SettingsOptions {
  /** Names with the same prefix in the environment that belong to somebody else, without the prefix. */
  readonly foreignEnv?: readonly string[];
}

/** The only version of config files so far; a file must say it. */
const FILE_VERSION = 1;

/** `prefix` opens every name in the environment: `EDGE` makes `heartbeatEvery` readable as `EDGE_HEARTBEAT_EVERY`. */
export function defineSettings<const T extends SettingsTable>(
  prefix: string,
  table: T,
  options: SettingsOptions = {},
): SettingsLoader<T> {
  const load = (sources: SettingsSources): SettingsOf<T> => {
    const layers = [
      sources.file === undefined ? [] : fromFile(table, sources.file),
      fromEnv(prefix, table, sources.env ?? {}, options.foreignEnv ?? []),
      fromArgv(table, sources.argv ?? []),
    ];
    const values: Record<string, unknown> = {};
    for (const [key, setting] of Object.entries(table)) {
      values[key] = setting.fallback === undefined ? undefined : parse(setting, setting.fallback, `default of ${key}`);
    }
    for (const { key, origin, raw } of layers.flat()) values[key] = parse(settingOf(table, key, origin), raw, origin);
    return values as SettingsOf<T>;
  };
  return Object.assign(load, { table, help: () => helpOf(prefix, table) });
}

interface Found {
  readonly key: string;
  /** How the user wrote it: `--listen`, `EDGE_LISTEN`, `listen in node.json`. */
  readonly origin: string;
  readonly raw: RawValue;
}

function fromArgv(table: SettingsTable, argv: readonly string[]): Found[] {
  const found: Found[] = [];
  for (let at = 0; at < argv.length; at++) {
    const word = argv[at] ?? "";
    const equals = word.indexOf("=");
    const name = equals < 0 ? word : word.slice(0, equals);
    if (!name.startsWith("--") || name.length === 2) {
      throw new SandboxError("InvalidArgument", `unexpected argument ${JSON.stringify(word)}`);
    }
    const negated = name.startsWith("--no-");
    const key = camel(name.slice(negated ? 5 : 2));
    const setting = settingOf(table, key, name);
    if (setting.placeholder === undefined) {
      found.push({ key, origin: name, raw: equals < 0 ? !negated : word.slice(equals + 1) });
    } else if (negated) {
      throw new SandboxError("InvalidArgument", `unknown setting ${name}`);
    } else if (equals >= 0) {
      found.push({ key, origin: name, raw: word.slice(equals + 1) });
    } else {
      const next = argv[++at];
      if (next === undefined) throw new SandboxError("InvalidArgument", `${name} needs a value`);
      found.push({ key, origin: name, raw: next });
    }
  }
  return found;
}

function fromEnv(
  prefix: string,
  table: SettingsTable,
  env: Readonly<Record<string, string | undefined>>,
  foreign: readonly string[],
): Found[] {
  const found: Found[] = [];
  for (const [name, raw] of Object.entries(env)) {
    if (!name.startsWith(`${prefix}_`) || raw === undefined) continue;
    const rest = name.slice(prefix.length + 1);
    if (foreign.includes(rest)) continue;
    const key = camel(rest.toLowerCase().replaceAll("_", "-"));
    settingOf(table, key, name);
    found.push({ key, origin: name, raw });
  }
  return found;
}

function fromFile(table: SettingsTable, file: { readonly name: string; readonly text: string }): Found[] {
  const document = parseJson(file);
  if (typeof document !== "object" || document === null || Array.isArray(document)) {
    throw new SandboxError("InvalidArgument", `${file.name} is not a JSON object`);
  }
  const { version, ...rest } = document as Record<string, unknown>;
  if (version !== FILE_VERSION) {
    throw new SandboxError("InvalidArgument", `${file.name} has version ${JSON.stringify(version)}`, {
      hint: `write "version": ${FILE_VERSION}`,
    });
  }
  return Object.entries(rest).map(([key, raw]) => {
    const origin = `${key} in ${file.name}`;
    settingOf(table, key, origin);
    if (typeof raw !== "string" && typeof raw !== "number" && typeof raw !== "boolean") {
      throw new SandboxError("InvalidArgument", `${origin} is neither text, number nor boolean`);
    }
    return { key, origin, raw };
  });
}

function parseJson(file: { readonly name: string; readonly text: string }): unknown {
  try {
    return JSON.parse(file.text);
  } catch (error) {
    throw new SandboxError("InvalidArgument", `${file.name} is not JSON`, { cause: error });
  }
}

function settingOf(table: SettingsTable, key: string, origin: string): Setting<unknown> {
  const setting = Object.hasOwn(table, key) ? table[key] : undefined;
  if (setting === undefined) {
    throw new SandboxError("InvalidArgument", `unknown setting ${origin}`, {
      hint: `known are ${Object.keys(table).join(", ")}`,
      details: { key },
    });
  }
  return setting;
}

function parse(setting: Setting<unknown>, raw: RawValue, origin: string): unknown {
  try {
    return setting.parse(raw);
  } catch (error) {
    if (error instanceof SandboxError || !(error instanceof Error)) throw error;
    throw new SandboxError("InvalidArgument", `${origin}: ${JSON.stringify(raw)} ${error.message}`);
  }
}

function helpOf(prefix: string, table: SettingsTable): string {
  const rows = Object.entries(table).map(([key, setting]) => {
    const flag = `--${kebab(key)}${setting.placeholder === undefined ? "" : ` ${setting.placeholder}`}`;
    const preset = setting.fallback === undefined || setting.fallback === "" ? "" : ` [${setting.fallback}]`;
    return { flag, text: `${setting.help}${preset} (${prefix}_${kebab(key).replaceAll("-", "_").toUpperCase()})` };
  });
  const width = Math.max(...rows.map((row) => row.flag.length));
  return rows.map((row) => `  ${row.flag.padEnd(width)}  ${row.text}\n`).join("");
}

function camel(kebabName: string): string {
  return kebabName.replace(/-([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());
}

function kebab(camelName: string): string {
  return camelName.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
}
