import { AgentError, SessionError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import type { Dialler } from "../../host/net/dial.ts";
import type { Files } from "../../host/files/files.ts";
import { valueOf, type StateFile } from "../../host/files/state-file.ts";
import { ASKING_VERSION } from "../../protocol/channel/envelope.ts";
import { keySetOf } from "../../protocol/channel/keys-chain.ts";
import type { Standing } from "../../protocol/channel/standing.ts";
import { AnswerWatch } from "./answers.ts";
import { Attempt, type HandshakeParty } from "./attempt.ts";
import { judgeServerProof, proveNode } from "./handshake.ts";
import { webSocketTransport } from "./transport.ts";
import { authSigner, identityFiles } from "../identity/identity.ts";

/** The node for which the question is asked. */
export interface NodeAsked {
  readonly clock: Clock;
  readonly files: Files;
  readonly stateDir: string;
  readonly bootId: string;
  readonly version: string;
}

/** Asks the control plane at an address whether it admits a node. */
export type AskStanding = (
  dialler: Dialler,
  target: { readonly session: string; readonly pins: readonly string[] },
  limit: { readonly signal: AbortSignal; readonly timeoutMs: number },
) => Promise<Standing>;

const NOTHING = { keys: 0, node: 0, cluster: 0, domain: 0 };

/**
 * Performs a handshake with the identity on disk, which is not modified. Its hello has a version that is never used, so the control plane
 * proves itself, records nothing and closes. If no identity can be read, a control plane that sends a challenge counts as admitting:
 * nothing is known against it.
 */
export async function askStanding(
  node: NodeAsked,
  ...[dialler, { session, pins }, { signal, timeoutMs }]: Parameters<AskStanding>
): Promise<Standing> {
  const { clock } = node;
  const progress: Progress = { isChallenged: false, isAnswered: false };
  const prover = await readProver(node);
  const party = askingParty(prover, progress, { url: session, pins, knownAddresses: [], timeoutMs });
  const end = await new Promise<string>((resolve) => {
    const attempt = new Attempt(
      {
        clock,
        mistakes: { warn: () => undefined },
        answers: new AnswerWatch(),
        open: webSocketTransport(dialler, clock, () => clock.now()),
        party,
        handlers: () => ({}),
      },
      {
        onHeard: () => undefined,
        onOpened: () => settle("opened"),
        onEnded: (_ending, { code }) => settle(code),
      },
    );
    const settle = (code: string): void => {
      signal.removeEventListener("abort", giveUp);
      attempt.end(new SessionError("asked", "it was only a question"));
      resolve(code);
    };
    const giveUp = (): void => settle("gave-up");
    signal.addEventListener("abort", giveUp);
    if (signal.aborted) giveUp();
    else void attempt.run();
  });
  if (!progress.isChallenged) return "unreached";
  const isAdmitted = prover === undefined || end === "opened" || end === "protocol-version" || progress.isAnswered;
  return isAdmitted ? "admitting" : "refusing";
}

interface Progress {
  isChallenged: boolean;
  /** It accepted the proof over a pinned TLS key, and signed with an unknown key, to which a chain of keys may lead. */
  isAnswered: boolean;
}

type Prover = Pick<HandshakeParty, "prove" | "verify">;

async function readProver({ files, stateDir, bootId, version }: NodeAsked): Promise<Prover | undefined> {
  const identity = identityFiles(files, stateDir);
  const read = <T>(file: StateFile<T>): Promise<T | undefined> => file.inspect().then(valueOf, () => undefined);
  const [keys, registration, counter] = await Promise.all([
    read(identity.keys),
    read(identity.registration),
    read(identity.counter),
  ]);
  if (keys === undefined || registration === undefined) return undefined;
  const about = { registration, bootId, version, have: NOTHING, protocol: ASKING_VERSION, n: counter?.n ?? 1 };
  return {
    prove: async (nonce, cnonce, tlsKey) =>
      proveNode({ ...about, signer: await authSigner(keys), nonce, cnonce, tlsKey }),
    verify: async (proof, cnonce, tlsKey) => {
      const trusted = await keySetOf(registration.controlPlane.keys.signing);
      return judgeServerProof(proof, { registration, cnonce, tlsKey, keys: trusted });
    },
  };
}

function askingParty(
  prover: Prover | undefined,
  progress: Progress,
  target: Awaited<ReturnType<HandshakeParty["target"]>>,
): HandshakeParty {
  const nobody = (): never => {
    throw new SessionError("asked", "there is no identity to prove");
  };
  return {
    target: () => Promise.resolve(target),
    async prove(...challenge) {
      progress.isChallenged = true;
      return prover === undefined ? nobody() : prover.prove(...challenge);
    },
    async verify(proof, cnonce, tlsKey, attempt) {
      try {
        return await (prover === undefined ? nobody() : prover.verify(proof, cnonce, tlsKey, attempt));
      } catch (error) {
        const isUnknown = error instanceof AgentError && error.code === "bad-signature";
        progress.isAnswered = isUnknown && tlsKey !== undefined && target.pins.includes(tlsKey);
        throw error;
      }
    },
    reportedVersion: () => 0,
    isDeletion: () => Promise.resolve(false),
    reached: () => undefined,
  };
}
