import { resolve } from "node:path";
import { parseArgs } from "node:util";
import { errnoOf, InputError, toError } from "../../errors.ts";
import { nearest } from "../../lib/text/nearest.ts";
import { parseStoreUrl, type PostgresSettings } from "../store/postgres-settings.ts";
import type { Place } from "./places.ts";

/** A task of `holdfast controller` on a store; without one the controller runs. */
export type Task = "backup" | "restore" | "migrate";

export const isTask = (word: string | undefined): word is Task =>
  word === "backup" || word === "restore" || word === "migrate";

/** A task with what it works on; paths are absolute. */
export type Order =
  | { readonly task: "backup"; readonly file: string; readonly place: Place }
  | { readonly task: "restore"; readonly file: string; readonly place: Place; readonly isReplaced: boolean }
  | { readonly task: "migrate"; readonly from: Place; readonly to: Place; readonly isReplaced: boolean };

const DEFAULT_DATA = "/var/lib/holdfast-controller";

const OF_FILE = {
  data: { type: "string", default: DEFAULT_DATA },
  store: { type: "string", default: "sqlite" },
  "store-password-file": { type: "string" },
  "store-ca-file": { type: "string" },
} as const;
const REPLACE = { replace: { type: "boolean", default: false } } as const;
const OF_MIGRATION = {
  data: { type: "string", default: DEFAULT_DATA },
  "to-data": { type: "string" },
  from: { type: "string" },
  "from-password-file": { type: "string" },
  "from-ca-file": { type: "string" },
  to: { type: "string" },
  "to-password-file": { type: "string" },
  "to-ca-file": { type: "string" },
  ...REPLACE,
} as const;

/** Option names of the tasks, without dashes. */
export const taskOptionNames: readonly string[] = [...new Set(Object.keys({ ...OF_FILE, ...OF_MIGRATION }))];

/**
 * Parses the command line of a task.
 * @throws {InputError} `usage` naming the error and, for a misspelling, the closest option; `invalid-settings`
 */
export function readOrder(task: Task, argv: readonly string[]): Order {
  if (task === "migrate") return readMigration(argv);
  const options = task === "backup" ? OF_FILE : { ...OF_FILE, ...REPLACE };
  const { values, positionals } = parsed(task, Object.keys(options), () =>
    parseArgs({ args: [...argv], options: { ...OF_FILE, ...REPLACE }, strict: true, allowPositionals: true }),
  );
  const [file] = positionals;
  if (file === undefined || positionals.length > 1) {
    throw new InputError("usage", `${task} takes one FILE: holdfast controller ${task} FILE [options]`);
  }
  if (task === "backup" && values.replace) throw new InputError("usage", "backup has no option --replace");
  const settings = settingsOf("store", values.store, values["store-password-file"], values["store-ca-file"]);
  const order = { file: resolve(file), place: { dataDir: resolve(values.data), postgres: settings } };
  return task === "backup" ? { task, ...order } : { task, ...order, isReplaced: values.replace };
}

function readMigration(argv: readonly string[]): Order {
  const { values, positionals } = parsed("migrate", Object.keys(OF_MIGRATION), () =>
    parseArgs({ args: [...argv], options: OF_MIGRATION, strict: true, allowPositionals: true }),
  );
  if (positionals.length > 0) throw new InputError("usage", `migrate does not take the argument '${positionals[0]}'`);
  const { from, to, data, "to-data": toData = data, replace: isReplaced } = values;
  if (from === undefined || to === undefined) {
    throw new InputError("usage", "migrate needs both stores: holdfast controller migrate --from STORE --to STORE");
  }
  return {
    task: "migrate",
    isReplaced,
    from: {
      dataDir: resolve(data),
      postgres: settingsOf("from", from, values["from-password-file"], values["from-ca-file"]),
    },
    to: { dataDir: resolve(toData), postgres: settingsOf("to", to, values["to-password-file"], values["to-ca-file"]) },
  };
}

function settingsOf(
  option: string,
  store: string,
  passwordFile: string | undefined,
  caFile: string | undefined,
): PostgresSettings | undefined {
  if (store !== "sqlite") return { address: parseStoreUrl(store, option), option, passwordFile, caFile };
  const extra = passwordFile !== undefined ? "password-file" : caFile !== undefined ? "ca-file" : undefined;
  if (extra !== undefined) {
    throw new InputError("invalid-settings", `--${option}-${extra}: requires a PostgreSQL --${option}`);
  }
  return undefined;
}

function parsed<T>(task: Task, names: readonly string[], parse: () => T): T {
  try {
    return parse();
  } catch (error) {
    const { message } = toError(error);
    const given = errnoOf(error) === "ERR_PARSE_ARGS_UNKNOWN_OPTION" ? /'--([^' =]+)/.exec(message)?.[1] : undefined;
    const near = given === undefined ? undefined : nearest(given, names);
    const hint = near === undefined ? "run 'holdfast controller --help' to see them all" : `did you mean --${near}?`;
    throw new InputError("usage", `${task}: ${message.split(". ", 1)[0] ?? message}: ${hint}`, { cause: error });
  }
}
