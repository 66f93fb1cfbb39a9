import { backoff } from "../../lib/async/backoff.ts";
import { inTurns } from "../../lib/async/in-turns.ts";
import type { Clock } from "../../host/clock.ts";
import type { OverlayListener, OverlayReason } from "../../protocol/overlay/overlay.ts";
import type { Remote, RemoteTarget } from "./remote.ts";
import { CANCEL } from "../flow/stream-reset.ts";

/** Remembers why other nodes refused the flows of a listener, and asks again until the reason changes. */
export interface RemoteRefusals<User> {
  /** Records that a flow of the user was refused. */
  note(user: User, reason: OverlayReason): void;
  reasonFor(user: User): OverlayReason | undefined;
  /** Drops the record of a user whose target changed or that closed. */
  forget(user: User): void;
  close(): void;
}

export interface RemoteRefusalsOptions<User> {
  readonly clock: Clock;
  /** Asks the other node how it would answer a flow, without opening one; undefined means that it would accept it. */
  readonly ask: (user: User) => Promise<OverlayReason | undefined>;
  /** Called soon after the reason of any user changes or clears. */
  readonly onChanged: () => void;
}

/** Reasons that persist for every flow until the configuration of the other node or of a gateway changes. */
const LASTING: ReadonlySet<OverlayReason> = new Set([
  "unknown-service",
  "not-granted",
  "literal-not-permitted",
  "protocol-mismatch",
  "service-down",
  "relay-refused",
]);
const NOTIFY_MS = 100;
/** Two nodes receive their documents one after the other, so the first answer may soon be outdated. */
const AGAIN = { firstMs: 1000, maxMs: 15_000 };
const AT_A_TIME = 16;
const ANSWER_MS = 15_000;

export function remoteRefusals<User>({ clock, ask, onChanged }: RemoteRefusalsOptions<User>): RemoteRefusals<User> {
  const reasons = new Map<User, OverlayReason>();
  let cancelNotice: (() => void) | undefined;
  let cancelRound: (() => void) | undefined;
  let isAsking = false;
  let isClosed = false;
  let rounds = 0;

  const changed = (): void => {
    if (isClosed) return;
    cancelNotice ??= clock.after(NOTIFY_MS, () => {
      cancelNotice = undefined;
      onChanged();
    });
  };
  const put = (user: User, reason: OverlayReason | undefined): void => {
    if (reasons.get(user) === reason) return;
    if (reason === undefined) reasons.delete(user);
    else reasons.set(user, reason);
    changed();
  };
  const askOne = async (user: User): Promise<void> => {
    const before = reasons.get(user);
    if (before === undefined || isClosed) return;
    const answer = await ask(user);
    // The reason may have changed in the meantime. A failure to ask is no new information.
    if (reasons.get(user) === before && (answer === undefined || LASTING.has(answer))) put(user, answer);
  };
  const round = async (): Promise<void> => {
    isAsking = true;
    await inTurns([...reasons.keys()], AT_A_TIME, askOne);
    isAsking = false;
    rounds += 1;
    arm();
  };
  const arm = (): void => {
    if (isClosed || isAsking || reasons.size === 0) return;
    cancelRound ??= clock.after(backoff(rounds + 1, AGAIN), () => {
      cancelRound = undefined;
      void round();
    });
  };

  return {
    note(user, reason) {
      if (!LASTING.has(reason) || reasons.get(user) === reason) return;
      put(user, reason);
      rounds = 0;
      cancelRound?.();
      cancelRound = undefined;
      arm();
    },
    reasonFor: (user) => reasons.get(user),
    forget: (user) => put(user, undefined),
    close() {
      isClosed = true;
      cancelNotice?.();
      cancelRound?.();
    },
  };
}

/** Asks whether a listener's target on another node would accept a flow. Never rejects; undefined means yes. */
export function askRemote(
  clock: Clock,
  remote: Remote,
  { protocol, application, addresses: [ip = "0.0.0.0"], port }: OverlayListener,
  target: RemoteTarget,
): Promise<OverlayReason | undefined> {
  return new Promise((resolve) => {
    let cancel = (): void => undefined;
    const end = (answer: OverlayReason | undefined): void => {
      cancel();
      resolve(answer);
    };
    const question = remote.dial(
      { target, protocol, application, client: { ip, port }, isQuestion: true },
      {
        opened(stream) {
          stream.on("error", () => undefined).close(CANCEL);
          end(undefined);
        },
        failed: end,
      },
    );
    cancel = clock.after(ANSWER_MS, () => {
      question.cancel();
      resolve("connect-timeout");
    });
  });
}
