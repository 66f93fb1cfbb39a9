import { AgentError, InputError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import type { DocumentVersions } from "../../protocol/documents/claims.ts";
import { PROTOCOL_VERSION } from "../../protocol/channel/envelope.ts";
import { verifyJws } from "../../protocol/channel/jws.ts";
import { keySetOf } from "../../protocol/channel/keys-chain.ts";
import { judgeServerProof, proveNode } from "./handshake.ts";
import type { ControlPlaneRpc, HandshakeParty } from "./attempt.ts";
import type { KnownAddresses } from "../identity/known-addresses.ts";
import { authSigner, type PrivateKeys, type Registration, type SessionCounter } from "../identity/identity.ts";

export interface PartyOptions {
  readonly clock: Clock;
  readonly addresses: KnownAddresses;
  readonly counter: SessionCounter;
  readonly keys: PrivateKeys;
  readonly registration: () => Registration;
  readonly bootId: string;
  readonly version: string;
  readonly have: () => DocumentVersions;
  readonly reportedVersion: () => number;
  /** Fetches and accepts newer keys documents; resolves to whether there were any. */
  readonly refreshKeys: (rpc: ControlPlaneRpc, signal: AbortSignal) => Promise<boolean>;
  /** Reports each proof and each statement that was not verified. */
  readonly onForgery: (what: string, error: AgentError) => void;
}

/** The node's side of the handshake: its keys, its counter, the pins, and the addresses that worked. */
export async function nodeParty(options: PartyOptions): Promise<HandshakeParty> {
  const signer = await authSigner(options.keys);
  const { addresses, counter } = options;

  const reportingForgery = async <T>(what: string, verified: () => Promise<T>): Promise<T> => {
    try {
      return await verified();
    } catch (error) {
      if (error instanceof AgentError) options.onForgery(what, error);
      throw error;
    }
  };
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
      knownAddresses: addresses.list,
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
        protocol: PROTOCOL_VERSION,
      });
    },
    verify: (proof, cnonce, tlsKey, { rpc, signal }) =>
      reportingForgery("a session's proof", async () => {
        try {
          return await verify(proof, cnonce, tlsKey);
        } catch (error) {
          // A node that missed a change of keys fetches the new ones first: the pinned root proves them.
          if (await options.refreshKeys(rpc, signal).catch(() => false)) return verify(proof, cnonce, tlsKey);
          throw error;
        }
      }),
    reportedVersion: options.reportedVersion,
    isDeletion: (jws, cnonce) =>
      reportingForgery("a statement that this node was deleted", async () => {
        const claims = await verifyJws("holdfast-deleted+jwt", jws, await keySetOf(controlPlane().keys.signing));
        const { node } = options.registration();
        if (claims.aud === node.uid && claims.nonce === cnonce && claims.iss === controlPlane().iss) return true;
        throw new InputError("bad-signature", "the statement is for another node or another session");
      }),
    reached: (address) => addresses.reached(address),
  };
}
