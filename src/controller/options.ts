import { KeyForm } from "./nodes/client-keys.ts";
import { parseArgs } from "node:util";
import { errnoOf, InputError, toError } from "../errors.ts";
import { nearest } from "../lib/text/nearest.ts";
import type { ControllerSettingsInput } from "./settings.ts";
import { defined } from "../lib/defined.ts";

const DEFAULT_LISTEN = "127.0.0.1:8480";
const DEFAULT_DATA = "/var/lib/holdfast-controller";

const OPTIONS = {
  listen: { type: "string", default: DEFAULT_LISTEN },
  data: { type: "string" },
  url: { type: "string" },
  domain: { type: "string" },
  "tls-cert": { type: "string" },
  "tls-key": { type: "string" },
  tls: { type: "boolean", default: false },
  "front-pin": { type: "string", multiple: true, default: [] as string[] },
  "trusted-proxy": { type: "string", multiple: true, default: [] as string[] },
  registry: { type: "string" },
  "registry-host": { type: "string" },
  releases: { type: "string" },
  "geo-file": { type: "string" },
  store: { type: "string" },
  "store-password-file": { type: "string" },
  "store-ca-file": { type: "string" },
  "node-keys": { type: "string" },
  "secret-overlap": { type: "string" },
  mock: { type: "boolean", default: false },
  state: { type: "string" },
  run: { type: "string" },
} as const;

/** Option names of `holdfast controller`, without dashes. */
export const optionNames: readonly string[] = Object.keys(OPTIONS);

/**
 * Parses the command line of `holdfast controller`.
 * @throws {InputError} `usage` naming the error and, for a misspelling, the closest option
 */
export function readOptions(argv: readonly string[]): ControllerSettingsInput & { readonly runDir: string } {
  const values = parse(argv);
  const kept = (["data", "store"] as const).find((name) => values.mock && values[name] !== undefined);
  if (kept !== undefined) throw new InputError("usage", `--${kept}: a mock keeps nothing; remove --${kept} or --mock`);
  const dataDir = values.data ?? DEFAULT_DATA;
  return {
    listen: values.listen,
    dataDir,
    // Without root, the controller cannot create the default run directory, and it needs no separate one.
    runDir: values.run ?? dataDir,
    ...defined({
      publicUrl: values.url,
      domain: values.domain,
      tlsCert: values["tls-cert"],
      tlsKey: values["tls-key"],
      registryUrl: values.registry,
      registryHost: values["registry-host"],
      releasesDir: values.releases,
      geoFile: values["geo-file"],
      store: values.store,
      storePasswordFile: values["store-password-file"],
      storeCaFile: values["store-ca-file"],
      nodeKeys: keyFormOf(values["node-keys"]),
      secretOverlapSeconds: secondsOf("secret-overlap", values["secret-overlap"]),
    }),
    frontPins: listOf(values["front-pin"]),
    ...(values["trusted-proxy"].length === 0 ? {} : { trustedProxies: listOf(values["trusted-proxy"]) }),
    ...(values.mock ? { isMock: true } : {}),
    ...(values.tls ? { tls: "self" as const } : {}),
  };
}

/** @throws {InputError} `usage` */
function keyFormOf(text: string | undefined): KeyForm | undefined {
  if (text === undefined) return undefined;
  const form = KeyForm.safeParse(text);
  if (form.success) return form.data;
  throw new InputError(
    "usage",
    `--node-keys: '${text.slice(0, 64)}' is no form of keys; use ${KeyForm.options.join(" or ")}`,
  );
}

/** @throws {InputError} `usage` */
function secondsOf(option: string, text: string | undefined): number | undefined {
  if (text === undefined || /^\d{1,15}$/.test(text)) return text === undefined ? undefined : Number(text);
  throw new InputError("usage", `--${option}: must be a whole number of seconds, not ${JSON.stringify(text)}`);
}

/** Splits an option that may be repeated or comma-separated. */
function listOf(texts: readonly string[]): string[] {
  return texts.flatMap((text) => text.split(",")).filter((value) => value !== "");
}

function parse(argv: readonly string[]) {
  try {
    return parseArgs({ args: [...argv], options: OPTIONS, strict: true, allowPositionals: false }).values;
  } catch (error) {
    const { message } = toError(error);
    if (errnoOf(error) !== "ERR_PARSE_ARGS_UNKNOWN_OPTION") throw new InputError("usage", message, { cause: error });
    const given = /'--([^' =]+)/.exec(message)?.[1];
    const near = given === undefined ? undefined : nearest(given, optionNames);
    const hint = near === undefined ? "run 'holdfast controller --help' to see them all" : `did you mean --${near}?`;
    throw new InputError("usage", `${message.split(". ", 1)[0] ?? message}: ${hint}`, { cause: error });
  }
}
