import { randomUUID } from "node:crypto";
import { importJWK, type CryptoKey } from "jose";
import { hostname } from "node:os";
import { join, resolve } from "node:path";
import type { Logger } from "pino";
import { InputError, InternalError, type HostError } from "../errors.ts";
import type { Clock } from "../host/clock.ts";
import { hostFiles, type Files } from "../host/files/files.ts";
import { commitReplacement, completeReplacement, isStaged } from "../host/files/replacement.ts";
import { releaseFiles, type ReleaseFiles } from "../host/releases/release-files.ts";
import type { Ed25519PublicKey } from "../protocol/values/keys.ts";
import type { KeysEnvelope } from "../protocol/channel/keys-chain.ts";
import { hostReader } from "../host/reader.ts";
import { openLocations, type Locations } from "./nodes/locations.ts";
import { ensureAdminKey } from "./access/admin-key.ts";
import { ADMIN_POLICY } from "./access/policies/policy.ts";
import { loadControlKeys, type ControlKeys } from "./channel/keys/control-keys.ts";
import { keyStore } from "./channel/keys/key-store.ts";
import { speedTestTokens as speedTestTokensOf, type SpeedTestTokens } from "./channel/keys/speed-test-tokens.ts";
import { fileCertificate, selfSignedCertificate, type ServerCertificate } from "./channel/keys/tls-certificate.ts";
import { volumeKeys as volumeKeysOf, type VolumeKeys } from "./channel/keys/volume-keys.ts";
import { checkNotMoved, DATABASE, hasDatabase, isEmpty, placeText, type Place } from "./maintenance/places.ts";
import { serveSnapshots } from "./maintenance/snapshots.ts";
import { nodeStore } from "./nodes/store.ts";
import {
  REGISTRY_SERVICE,
  registryTokens as registryTokensOf,
  type RegistryTokens,
} from "./registry/registry-tokens.ts";
import { tlsModeOf, type ControllerSettings } from "./settings.ts";
import type { StoreDatabase } from "./store/database.ts";
import { metaStore } from "./store/meta.ts";
import { openSqliteAsIs, openSqliteStore } from "./store/sqlite.ts";
import { storeIn, type Store } from "./stores.ts";

/** Contents of a controller's data directory: the database, keys and certificates. */
export interface State {
  readonly store: Store;
  readonly keys: ControlKeys;
  /** Key that verifies access tokens of the API. */
  readonly apiTokenKey: CryptoKey;
  readonly speedTestTokens: SpeedTestTokens;
  readonly volumeKeys: VolumeKeys;
  /** Undefined without a registry. */
  readonly registryTokens: RegistryTokens | undefined;
  /** Undefined without TLS. */
  readonly certificate: ServerCertificate | undefined;
  /** Hashes of all TLS keys that nodes may see. */
  readonly tlsPins: readonly string[];
  /** Undefined if no releases are served. */
  readonly releases: ReleaseFiles | undefined;
  /** Undefined without a geolocation file. */
  readonly locations: Locations | undefined;
  /** UUID of the organization and FQDN of its domain. */
  readonly identity: { readonly org: string; readonly domain: string };
  readonly adminKeyPath: string;
}

/** Path of the database. */
export const databasePathOf = ({ dataDir }: ControllerSettings): string => join(resolve(dataDir), DATABASE);

export interface StateDeps {
  readonly log: Logger;
  readonly clock: Clock;
  /** Called once if another controller has used the PostgreSQL store while this one had lost its lock, so that it must end. */
  readonly onTakenOver: (error: HostError) => void;
}

/**
 * Opens the state, or creates it at the first start; `stack` closes it.
 * @throws {InputError} `invalid-settings`; {HostError} if the database, a key or a certificate is unavailable
 */
export async function openState(
  settings: ControllerSettings,
  { log, clock, onTakenOver }: StateDeps,
  stack: AsyncDisposableStack,
): Promise<State> {
  const files = hostFiles();
  const dataDir = resolve(settings.dataDir);
  const keysDir = join(dataDir, "keys");
  // Files that the operator gives come first: nothing is created if they are missing.
  const given = await givenCertificate(files, settings);
  const locations =
    settings.geoFile === undefined ? undefined : await openLocations(resolve(settings.geoFile), hostReader(), log);
  const releases = settings.releasesDir === undefined ? undefined : await releaseFiles(settings.releasesDir, clock);
  const directories = [dataDir, keysDir, join(dataDir, "tls")];
  for (const directory of directories) await files.makeDirectory(directory, 0o700);
  const place = placeOf(settings);
  if (place.postgres === undefined) await completeReplacement(dataDir);
  const isExpected = (await files.list(keysDir)).length > 0;
  const database = await openStore(settings, { isExpected, clock, onTakenOver });
  const store = stack.adopt(storeIn(database, clock), (opened) => opened.close());
  await checkNotMoved(database, placeText(place));
  if (place.postgres === undefined) stack.defer(await serveSnapshots(dataDir, database, log));
  else await joinPostgres(database, place);
  for (const directory of directories) await files.sweep(directory);
  const certificate = given ?? (await ownCertificate(files, dataDir, settings, clock));
  const tlsPins = pinsOf(settings, certificate);
  const keys = await loadControlKeys(keyStore(files, keysDir), ledgerOf(store), {
    spki: tlsPins,
    nowSeconds: Math.floor(clock.now() / 1000),
  });
  const admin = await ensureAdminKey(files, dataDir, {
    get: () => store.meta.get("admin-key-hash"),
    set: (hash) => store.meta.set("admin-key-hash", hash),
  });
  if (admin.isNew) log.info({ path: admin.path }, "created the operator's API key");
  await store.access.putApiKey("admin", Buffer.from(admin.hash, "base64url").toString("hex"), [ADMIN_POLICY]);
  return {
    store,
    keys,
    apiTokenKey: await verificationKey(keys.apiToken.publicKey),
    speedTestTokens: await speedTestTokensOf(files, join(keysDir, "speed-test.key")),
    volumeKeys: await volumeKeysOf(files, join(keysDir, "volumes.key")),
    registryTokens: await registryTokensFor(files, dataDir, settings, clock),
    certificate,
    tlsPins,
    releases,
    locations,
    identity: await identityOf(store, settings),
    adminKeyPath: admin.path,
  };
}

async function givenCertificate(files: Files, settings: ControllerSettings): Promise<ServerCertificate | undefined> {
  if (tlsModeOf(settings) !== "files") return undefined;
  return fileCertificate(files, resolve(settings.tlsCert ?? ""), resolve(settings.tlsKey ?? ""));
}

async function ownCertificate(
  files: Files,
  dataDir: string,
  settings: ControllerSettings,
  clock: Clock,
): Promise<ServerCertificate | undefined> {
  if (tlsModeOf(settings) !== "self") return undefined;
  const publicHost = settings.publicUrl === undefined ? [] : [new URL(settings.publicUrl).hostname];
  const hosts = [...new Set([...publicHost, settings.listen.host])].map((host) => host.replace(/^\[|\]$/g, ""));
  return selfSignedCertificate(files, join(dataDir, "tls"), hosts, clock.now());
}

/** Loads or creates the token key of the registry; the registry uses `<data>/registry/cert.pem` as its `rootcertbundle`. */
async function registryTokensFor(
  files: Files,
  dataDir: string,
  { registryUrl }: ControllerSettings,
  clock: Clock,
): Promise<RegistryTokens | undefined> {
  if (registryUrl === undefined) return undefined;
  const directory = join(dataDir, "registry");
  await files.makeDirectory(directory, 0o700);
  const pair = await selfSignedCertificate(files, directory, [REGISTRY_SERVICE], clock.now());
  return registryTokensOf({ ...pair, clock });
}

/** Returns the hashes of all TLS keys that nodes may see. */
function pinsOf({ frontPins }: ControllerSettings, certificate: ServerCertificate | undefined): readonly string[] {
  return [...new Set([...frontPins, ...(certificate === undefined ? [] : [certificate.pin])])];
}

async function verificationKey(key: Ed25519PublicKey): Promise<CryptoKey> {
  const imported = await importJWK(key, "EdDSA");
  if (imported instanceof Uint8Array) throw new InternalError("internal", "an Ed25519 key cannot be symmetric");
  return imported;
}

function ledgerOf(store: Store) {
  return {
    all: () => store.meta.keyDocuments(),
    append: (version: number, envelope: KeysEnvelope) => store.meta.appendKeyDocument(version, envelope),
  };
}

/** Returns the organization and domain, fixed at the first start: every node's name and license contains them. */
function identityOf(
  store: Store,
  settings: ControllerSettings,
): Promise<{ readonly org: string; readonly domain: string }> {
  return store.transact(async ({ meta }) => {
    const org = (await meta.get("org")) ?? randomUUID();
    const stored = await meta.get("domain");
    if (stored !== undefined && settings.domain !== undefined && stored !== settings.domain) {
      throw new InputError("invalid-settings", `--domain: this controller's domain is ${stored} and cannot change`);
    }
    const domain = stored ?? settings.domain ?? "holdfast.example";
    await meta.set("org", org);
    await meta.set("domain", domain);
    return { org, domain };
  });
}

function placeOf(settings: ControllerSettings): Place {
  const { dataDir, store: address, storePasswordFile: passwordFile, storeCaFile: caFile } = settings;
  return { dataDir: resolve(dataDir), postgres: address === undefined ? undefined : { address, passwordFile, caFile } };
}

/**
 * Completes a restore of a PostgreSQL store that was interrupted after its commit. Refuses an empty one beside a file with nodes, whose
 * sessions and names an empty store would refuse.
 */
async function joinPostgres(database: StoreDatabase, place: Place): Promise<void> {
  const { dataDir } = place;
  const restored = await metaStore(database.db).get("restored");
  if (restored !== undefined && isStaged(dataDir, restored)) await commitReplacement(dataDir, restored);
  await completeReplacement(dataDir);
  if (!(await isEmpty(database)) || !(await hasDatabase(dataDir))) return;
  const nodes = await nodesInFile(dataDir);
  if (nodes === 0) return;
  throw new InputError(
    "store-not-migrated",
    `the store ${placeText(place)} is empty, but ${join(dataDir, DATABASE)} has ${nodes} nodes, which it would refuse; run 'holdfast ` +
      `controller migrate --from sqlite --to postgres://... --data ${dataDir}' first, or move that file away to begin without them`,
  );
}

async function nodesInFile(dataDir: string): Promise<number> {
  const file = openSqliteAsIs(join(dataDir, DATABASE));
  try {
    return (await nodeStore(file.db).uids()).length;
  } finally {
    await file.close();
  }
}

/** Opens the database that the settings name: a file in the data directory, or one on a PostgreSQL server. */
async function openStore(
  settings: ControllerSettings,
  { isExpected, clock, onTakenOver }: Pick<StateDeps, "clock" | "onTakenOver"> & { readonly isExpected: boolean },
): Promise<StoreDatabase> {
  const { publicUrl, listen } = settings;
  const { postgres } = placeOf(settings);
  if (postgres === undefined) return openSqliteStore(databasePathOf(settings), isExpected);
  // Loaded only where it is used.
  const { openPostgresStore } = await import("./store/postgres.ts");
  const startedAt = new Date(clock.now()).toISOString();
  const holder = { name: hostname(), address: publicUrl ?? `${listen.host}:${listen.port}`, startedAt };
  return openPostgresStore({ settings: postgres, holder, clock, onTakenOver });
}
