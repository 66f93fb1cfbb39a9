import { AgentError, HostError, toError } from "../../errors.ts";
import { hostFiles, type Files } from "../../host/files/files.ts";
import { readPrivateFile } from "../../host/files/private-file.ts";
import { stateFile, valueOf, type Loaded, type StateFile } from "../../host/files/state-file.ts";
import { DocumentName } from "../../protocol/documents/claims.ts";
import { peekClaims } from "../../protocol/channel/jws.ts";
import type { FileStanding, LeftDocument, LeftState, SettingsStanding } from "../../protocol/local/left-state.ts";
import { shownValue, type Shown } from "../../protocol/documents/shown.ts";
import { JsonObject } from "../../protocol/values/values.ts";
import { AgentFile, readSettings } from "../settings.ts";
import { identityFiles } from "../identity/identity.ts";
import { Stored } from "../shadow/held-document.ts";
import { defined } from "../../lib/defined.ts";

/** Reads what an agent left, as far as it is readable, without changing anything. */
export async function inspectState(stateDir: string, config: string | undefined, runDir?: string): Promise<LeftState> {
  const files = hostFiles();
  const standing: { file: string; is: FileStanding }[] = [];
  const inspect = async <T>(file: string, from: StateFile<T>): Promise<T | undefined> => {
    const loaded = await inspected(from);
    standing.push({ file, is: loaded.is });
    return loaded.is === "unreadable" ? undefined : valueOf(loaded);
  };
  const identity = identityFiles(files, stateDir);
  const registration = await inspect("identity/registration.json", identity.registration);
  await inspect("identity/keys.json", identity.keys);
  await inspect("identity/counter.json", identity.counter);
  const documents: LeftDocument[] = [];
  for (const name of DocumentName.options) {
    const stored = await inspect(`desired/${name}.json`, documentFile(files, stateDir, name));
    const document = stored === undefined ? undefined : documentOf(name, stored);
    if (document !== undefined) documents.push(document);
  }
  return {
    settings: await settingsStanding({ stateDir, config, runDir }, files),
    files: standing,
    node: registration?.node,
    documents,
    hasPendingChange: await isThere(files, `${stateDir}/desired/checkpoint.json`),
  };
}

/** Returns every readable secret of this node, so that they can be removed from a text. */
export async function readSecrets(stateDir: string, config: string | undefined): Promise<readonly string[]> {
  const files = hostFiles();
  const text = await files.read(config ?? DEFAULT_FILE).catch(() => undefined);
  const settings = jsonOf(text);
  // A password in an invalid file is a secret as well.
  const users = [...(text ?? "").matchAll(/:\/\/([^/@\s"]+)@/g)].map(([, user = ""]) => user);
  const inAddresses = users.concat(users.flatMap((user) => user.split(":")));
  const keys = identityFiles(files, stateDir).keys;
  const found = await Promise.all([
    inspected(keys).then((loaded) => (loaded.is === "unreadable" ? undefined : valueOf(loaded))),
    previousOf(keys),
  ]);
  const documents = await Promise.all(DocumentName.options.map((name) => documentSecrets(files, stateDir, name)));
  return [
    ...inAddresses,
    ...shownValue("settings", settings).leftOut,
    ...credentialFiles(settings).flatMap(secretsOfFile),
    ...found.flatMap((pair) => (pair === undefined ? [] : Object.values(pair).map(({ d }) => d))),
    ...documents.flat(),
  ];
}

/** Returns the settings file without secrets; undefined if there is none, or none that is valid. */
export async function shownSettings(config: string | undefined): Promise<unknown> {
  const parsed = AgentFile.safeParse(jsonOf(await hostFiles().read(config ?? DEFAULT_FILE)));
  return parsed.success ? shownValue("settings", parsed.data).shown : undefined;
}

/** Returns a document without secrets: of the configuration what is known to be harmless, of the domain its size. */
export function shownDocument({ name, version, receivedAt, refused, body }: LeftDocument): Shown {
  const { config = {}, peers, grants, ...record } = body;
  const leftOut: string[] = [];
  const take = (kind: string, value: unknown): unknown => {
    const taken = shownValue(kind, value);
    leftOut.push(...taken.leftOut);
    return taken.shown;
  };
  const sections = Object.entries(JsonObject.safeParse(config).data ?? {}).map(([section, value]) => [
    section,
    take(section, value),
  ]);
  const count = (list: unknown): number => (Array.isArray(list) ? list.length : 0);
  const shown = {
    name,
    version,
    receivedAt,
    refused,
    record: take("document", record),
    ...(name === "domain" ? { peers: count(peers), grants: count(grants) } : {}),
    config: Object.fromEntries(sections) as JsonObject,
  };
  return { shown, leftOut };
}

const DEFAULT_FILE = "/etc/holdfast/agent.json";

/** Returns the secrets of the applied, previous and rolled-back documents, since a log may contain those of each. */
async function documentSecrets(files: Files, stateDir: string, name: DocumentName): Promise<readonly string[]> {
  const at = (file: string): StateFile<Stored> =>
    stateFile(files, { path: `${stateDir}/desired/${file}.json`, schema: Stored, keepsPrevious: true });
  const copies = [at(name), at(`${name}.refused`)].flatMap((file) => [
    inspected(file).then((found) => (found.is === "unreadable" ? undefined : valueOf(found))),
    previousOf(file),
  ]);
  return (await Promise.all(copies)).flatMap((stored) => {
    const document = stored === undefined ? undefined : (documentOf(name, stored) ?? looseDocument(name, stored));
    const leftOut = document === undefined ? [] : shownDocument(document).leftOut;
    return stored === undefined ? [] : leftOut.concat(stored.jws);
  });
}

/** Includes the secrets of a document that this version cannot use. */
function looseDocument(name: DocumentName, { jws, receivedAt }: Stored): LeftDocument | undefined {
  const claims = JsonObject.safeParse(jsonOf(Buffer.from(jws.split(".")[1] ?? "", "base64url").toString("utf8")));
  const body = JsonObject.safeParse(claims.data?.["body"]);
  return body.success ? { name, version: 0, receivedAt, refused: undefined, body: body.data } : undefined;
}

const previousOf = <T>(file: StateFile<T>): Promise<T | undefined> => file.previous().catch(() => undefined);

/** Returns the files with credentials that the settings name. */
function credentialFiles(settings: unknown): readonly string[] {
  const parsed = AgentFile.safeParse(settings);
  return (parsed.data?.dataStore?.s3 ?? []).flatMap(({ credentials }) =>
    credentials === undefined ? [] : [credentials],
  );
}

function secretsOfFile(path: string): readonly string[] {
  try {
    return shownValue("", jsonOf(readPrivateFile(path))).leftOut;
  } catch {
    return [];
  }
}

function jsonOf(text: string | undefined): unknown {
  try {
    return JSON.parse(text ?? "");
  } catch {
    return undefined;
  }
}

function documentFile(files: Files, stateDir: string, name: DocumentName): StateFile<Stored> {
  return stateFile(files, { path: `${stateDir}/desired/${name}.json`, schema: Stored, keepsPrevious: true });
}

function documentOf(name: DocumentName, { jws, receivedAt, refused }: Stored): LeftDocument | undefined {
  try {
    const { version, body } = peekClaims("holdfast-document+jwt", jws);
    return { name, version, receivedAt, refused: refused?.version, body };
  } catch {
    return undefined;
  }
}

async function inspected<T>(file: StateFile<T>): Promise<Loaded<T> | { readonly is: "unreadable" }> {
  try {
    return await file.inspect();
  } catch (error) {
    if (error instanceof HostError) return { is: "unreadable" };
    throw error;
  }
}

interface Place {
  readonly stateDir: string;
  readonly config: string | undefined;
  /** Directory of the agent's sockets; the default one when undefined. */
  readonly runDir: string | undefined;
}

async function settingsStanding({ stateDir, config, runDir }: Place, files: Files): Promise<SettingsStanding> {
  const option = (name: string, value: string | undefined) => (value === undefined ? [] : [`--${name}`, value]);
  try {
    const argv = ["--state", stateDir, ...option("config", config), ...option("run", runDir)];
    const { unit, overlay, engineSocket, proxies, hosts, problems } = await readSettings(argv, files);
    const [problem] = problems ?? [];
    return {
      isGood: true,
      ...defined({ problem }),
      unit,
      overlay,
      engineSocket,
      hasProxy: proxies.https !== undefined,
      ...defined({ hosts }),
    };
  } catch (thrown) {
    const error = toError(thrown);
    return { isGood: false, code: error instanceof AgentError ? error.code : "internal", message: error.message };
  }
}

async function isThere(files: Files, path: string): Promise<boolean | undefined> {
  return files.read(path).then(
    (text) => text !== undefined,
    () => undefined,
  );
}
