import type { Clock } from "../../host/clock.ts";

/** Tracks which users of a shared resource were refused, until none was refused for 10 s and the resource is available again. */
export interface Shortage<User> {
  /** Records that a request of the user was refused. */
  note(user: User): void;
  holdsFor(user: User): boolean;
  forget(user: User): void;
  close(): void;
}

export interface ShortageOptions {
  readonly clock: Clock;
  /** Reports whether the next request would succeed. */
  readonly hasRoom: () => boolean;
  /** Called soon after the set of affected users changed. */
  readonly onChanged: () => void;
}

const CHECK_MS = 500;
/** A shortage that comes and goes counts as one. */
const QUIET_MS = 10_000;

export function shortage<User>({ clock, hasRoom, onChanged }: ShortageOptions): Shortage<User> {
  /** When each was last refused, in monotonic milliseconds. */
  const lastSeen = new Map<User, number>();
  let hasChanged = false;
  let cancel: (() => void) | undefined;

  const evaluate = (): void => {
    cancel = undefined;
    const quietSince = clock.elapsed() - QUIET_MS;
    const isOver = hasRoom();
    for (const [user, seen] of lastSeen) {
      if (!isOver || seen > quietSince) continue;
      lastSeen.delete(user);
      hasChanged = true;
    }
    if (lastSeen.size > 0) arm();
    if (!hasChanged) return;
    hasChanged = false;
    onChanged();
  };
  const arm = (): void => void (cancel ??= clock.after(CHECK_MS, evaluate));

  return {
    note(user) {
      if (!lastSeen.has(user)) hasChanged = true;
      lastSeen.set(user, clock.elapsed());
      arm();
    },
    holdsFor: (user) => lastSeen.has(user),
    forget: (user) => void lastSeen.delete(user),
    close: () => cancel?.(),
  };
}
