import type { Clock } from "../../host/clock.ts";

/** Which users of a shared resource it was lacking for, until none of them was refused for a while and there is room again. */
export interface Shortage<User> {
  /** Something was refused to the user for lack of it. */
  note(user: User): void;
  holdsFor(user: User): boolean;
  forget(user: User): void;
  close(): void;
}

export interface ShortageOptions {
  readonly clock: Clock;
  /** Whether the next one would be given what it asks for. */
  readonly hasRoom: () => boolean;
  /** Called soon after any user is in want, or no longer so. */
  readonly onChanged: () => void;
}

const CHECK_MS = 500;
/** A shortage that comes and goes is one. */
const QUIET_MS = 10_000;

export function shortage<User>({ clock, hasRoom, onChanged }: ShortageOptions): Shortage<User> {
  /** When each was refused last, in monotonic milliseconds. */
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
