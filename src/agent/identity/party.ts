import type { Clock } from "../../host/clock.ts";
import type { DocumentVersions } from "../../protocol/claims.ts";
import { verifyJws } from "../../protocol/jws.ts";
import { keySetOf } from "../../protocol/keys-chain.ts";
import type { StateFile } from "../../host/state-file.ts";
import { judgeServerProof, proveNode } from "../session/handshake.ts";
import type { ControlPlaneRpc, HandshakeParty } from "../session/attempt.ts";
import { authSigner, type Addresses, type PrivateKeys, type Registration, type SessionCounter } from "./identity.ts";

const KNOWN_ADDRESSES_MAX = 8;

export interface PartyOptions {
  readonly clock: Clock;
  readonly addresses: StateFile<Addresses>;
  readonly counter: SessionCounter;
  readonly keys: PrivateKeys;
  readonly registration: () => Registration;
  readonly bootId: string;
  readonly version: string;
  readonly have: () => DocumentVersions;
  readonly reportedVersion: () => number;
  /** Fetches and accepts newer versions of the keys document; resolves whether there were any. */
  readonly refreshKeys: (rpc: ControlPlaneRpc, signal: AbortSignal) => Promise<boolean>;
  readonly onFault: (error: unknown) => void;
}

/** The node's side of the handshake: its keys, its counter, the pins and the addresses that worked. */
export async function nodeParty(options: PartyOptions): Promise<HandshakeParty> {
  const signer = await authSigner(options.keys);
  const { addresses, counter } = options;
  const loaded = await addresses.load();
  let known: readonly string[] = loaded.is === "good" ? loaded.value.addresses : [];

  const controlPlane = (): Registration["controlPlane"] => options.registration().controlPlane;
  const verify = async (proof: string, cnonce: string, tlsKey: string | undefined) =>
    judgeServerProof(proof, {
      registration: options.registration(),
      cnonce,
      tlsKey,
      keys: await keySetOf(controlPlane().keys.signing),
    });

  return {
    target: async () => ({
      url: options.registration().node.session,
      pins: controlPlane().keys.spki,
      knownAddresses: known,
      timeoutMs: 10_000,
    }),
    async prove(nonce, cnonce, tlsKey) {
      return proveNode({
        registration: options.registration(),
        signer,
        nonce,
        cnonce,
        n: await counter.next(),
        bootId: options.bootId,
        version: options.version,
        have: options.have(),
        tlsKey,
      });
    },
    async verify(proof, cnonce, tlsKey, { rpc, signal }) {
      try {
        return await verify(proof, cnonce, tlsKey);
      } catch (error) {
        // A node that slept through a change of keys fetches them first: they prove themselves by the root it has pinned.
        if (await options.refreshKeys(rpc, signal).catch(() => false)) return verify(proof, cnonce, tlsKey);
        throw error;
      }
    },
    reportedVersion: options.reportedVersion,
    async isDeletion(jws, cnonce) {
      const claims = await verifyJws("holdfast-deleted+jwt", jws, await keySetOf(controlPlane().keys.signing));
      const { node } = options.registration();
      return claims.aud === node.uid && claims.nonce === cnonce && claims.iss === controlPlane().iss;
    },
    reached(address) {
      if (known[0] === address) return;
      known = [address, ...known.filter((other) => other !== address)].slice(0, KNOWN_ADDRESSES_MAX);
      addresses.save({ addresses: [...known] }).catch(options.onFault);
    },
  };
}
