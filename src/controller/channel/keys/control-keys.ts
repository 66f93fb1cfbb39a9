import { HostError } from "../../../errors.ts";
import type { KeysClaims } from "../../../protocol/documents/claims.ts";
import { peekClaims, signJws, type KeySet } from "../../../protocol/channel/jws.ts";
import { keySetOf, walkKeysChain, type KeysEnvelope } from "../../../protocol/channel/keys-chain.ts";
import { thumbprint } from "../../../protocol/values/keys.ts";
import type { KeyPair, KeyStore } from "./key-store.ts";

/** Online keys of a running controller, and all versions of its keys document. */
export interface ControlKeys {
  readonly signing: KeyPair;
  /** Signs access tokens of the API; nodes do not trust it. */
  readonly apiToken: KeyPair;
  /** Accepted signers of licenses: the keys of the latest version. */
  readonly accepted: KeySet;
  readonly rootThumbprint: string;
  readonly newest: KeysClaims;
  readonly envelopes: readonly KeysEnvelope[];
}

/** Storage of the versions of the keys document. */
export interface KeysLedger {
  all(): Promise<readonly KeysEnvelope[]>;
  append(version: number, envelope: KeysEnvelope): Promise<void>;
}

/**
 * Loads or creates the keys and updates the keys document: appends a version signed by root if the signing key or TLS pins changed. A key
 * named `root-next` replaces the root; both sign the version that introduces it.
 * @throws {HostError} `root-key-missing` if a new version is due but the root key is missing, `root-key-foreign` if it is another key
 */
export async function loadControlKeys(
  store: KeyStore,
  ledger: KeysLedger,
  options: { readonly spki: readonly string[]; readonly nowSeconds: number },
): Promise<ControlKeys> {
  const signing = (await store.load("signing")) ?? (await store.create("signing"));
  const apiToken = (await store.load("api-token")) ?? (await store.create("api-token"));
  const stored = await ledger.all();
  const current = stored.length === 0 ? undefined : await walkOwn(stored);
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
    await ledger.append(claims.version, cross === undefined ? { jws } : { jws, cross });
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
    envelopes: await ledger.all(),
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

/** Returns the private root that signs the next version: the one that the latest version names, or a new one at the first start. */
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
    throw new HostError(
      "root-key-missing",
      "a new version of the keys document is due, but keys/root.jwk is missing; restore it",
    );
  throw new HostError(
    "root-key-foreign",
    "keys/root.jwk is not the root key of the keys document; restore the right one",
  );
}

/** Returns the versions of the keys document from `version` on, with signatures. */
export function keysFrom(keys: ControlKeys, version: number): readonly KeysEnvelope[] {
  return keys.envelopes.slice(Math.max(0, version - 1));
}
