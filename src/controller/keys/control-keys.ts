import { HostError } from "../../errors.ts";
import type { KeysClaims } from "../../protocol/documents/claims.ts";
import { peekClaims, signJws, type KeySet } from "../../protocol/channel/jws.ts";
import { keySetOf, walkKeysChain, type KeysEnvelope } from "../../protocol/channel/keys-chain.ts";
import { thumbprint } from "../../protocol/values/keys.ts";
import type { KeyPair, KeyStore } from "./key-store.ts";

/** The online keys of a running controller and every version of its keys document. */
export interface ControlKeys {
  readonly signing: KeyPair;
  /** Signs the API's own bearer tokens; no node ever trusts it. */
  readonly apiToken: KeyPair;
  /** Who may have signed a license: the keys of the newest version only. */
  readonly accepted: KeySet;
  readonly rootThumbprint: string;
  readonly newest: KeysClaims;
  readonly envelopes: readonly KeysEnvelope[];
}

/** Where the versions of the keys document are kept. */
export interface KeysLedger {
  all(): readonly KeysEnvelope[];
  append(version: number, envelope: KeysEnvelope): void;
}

/**
 * Loads or makes the keys and brings the keys document up to date: a new version, signed by root, whenever the signing key or the
 * TLS pins differ from the newest one. A key named `root-next` replaces the root: the version that names it is signed by both.
 * @throws {HostError} `root-key-missing` when a new version is due and the root is not here, `root-key-foreign` when it is another.
 */
export async function loadControlKeys(
  store: KeyStore,
  ledger: KeysLedger,
  options: { readonly spki: readonly string[]; readonly nowSeconds: number },
): Promise<ControlKeys> {
  const signing = (await store.load("signing")) ?? (await store.create("signing"));
  const apiToken = (await store.load("api-token")) ?? (await store.create("api-token"));
  const before = ledger.all();
  const current = before.length === 0 ? undefined : await walkOwn(before);
  const rootNext = await store.load("root-next");
  const wanted = { signing: [signing.publicKey], spki: [...options.spki] };
  const isRootNew = rootNext !== undefined && rootNext.publicKey.x !== current?.root.x;

  let newest = current;
  if (current === undefined || isRootNew || !hasSame(current, wanted)) {
    const root = await signingRoot(store, current, rootNext);
    const claims: KeysClaims = {
      name: "keys",
      version: (current?.version ?? 0) + 1,
      iat: options.nowSeconds,
      root: isRootNew ? rootNext.publicKey : root.publicKey,
      ...wanted,
    };
    const jws = await signJws("holdfast-keys+jwt", claims, root);
    const cross = isRootNew ? await signJws("holdfast-keys+jwt", claims, rootNext) : undefined;
    ledger.append(claims.version, cross === undefined ? { jws } : { jws, cross });
    newest = claims;
  }
  if (newest === undefined) throw new HostError("root-key-missing", "there is no keys document");
  if (rootNext !== undefined) await store.promote("root-next", "root");
  return {
    signing,
    apiToken,
    accepted: await keySetOf(newest.signing),
    rootThumbprint: await thumbprint(newest.root),
    newest,
    envelopes: ledger.all(),
  };
}

async function walkOwn(envelopes: readonly KeysEnvelope[]): Promise<KeysClaims> {
  const first = peekClaims("holdfast-keys+jwt", envelopes[0]?.jws ?? "");
  return walkKeysChain(await thumbprint(first.root), envelopes);
}

function hasSame(current: KeysClaims, wanted: Pick<KeysClaims, "signing" | "spki">): boolean {
  const text = ({ signing, spki }: typeof wanted): string => JSON.stringify([signing.map((key) => key.x), spki]);
  return text(current) === text(wanted);
}

/** The private root that signs the next version: the one the newest version names, or on first start a new one. */
async function signingRoot(
  store: KeyStore,
  current: KeysClaims | undefined,
  rootNext: KeyPair | undefined,
): Promise<KeyPair> {
  const root = await store.load("root");
  if (current === undefined) return root ?? store.create("root");
  // After a crash between storing the version and promoting the key, the new root still has its old file name.
  for (const candidate of [root, rootNext]) if (candidate?.publicKey.x === current.root.x) return candidate;
  if (root === undefined)
    throw new HostError("root-key-missing", "the keys document must change and the root key is not here");
  throw new HostError("root-key-foreign", "keys/root.jwk is not the root that the keys document names");
}

/** The versions of the keys document from one on, each with its signatures. */
export function keysFrom(keys: ControlKeys, version: number): readonly KeysEnvelope[] {
  return keys.envelopes.slice(Math.max(0, version - 1));
}
