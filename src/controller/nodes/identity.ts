/** History of the hellos of one identity. */
export interface IdentityTrail {
  readonly n: number;
  readonly bootId: string | undefined;
  /** Earlier boot ids, newest first. */
  readonly earlierBoots: readonly string[];
  /** Wall-clock time of the latest sign of a shared identity, in milliseconds. */
  readonly sharedAt: number | undefined;
  /** Set while documents, tokens and triggers are withheld until an operator decides. */
  readonly isHeld: boolean;
}

export const NEW_IDENTITY: IdentityTrail = {
  n: 0,
  bootId: undefined,
  earlierBoots: [],
  sharedAt: undefined,
  isHeld: false,
};

/** Two signs of sharing within this time, in milliseconds, mean that two machines alternate. */
export const ALTERNATION_MS = 10 * 60_000;
const BOOTS_KEPT = 8;

/**
 * Evaluates a hello with a valid proof. A counter that does not rise, or a boot id that returns after another, is a sign that two machines
 * share one identity. The history continues from this hello, so that a machine restored from a snapshot is reported once. Pure.
 */
export function judgeHello(
  trail: IdentityTrail,
  hello: { readonly n: number; readonly bootId: string },
  now: number,
): { readonly trail: IdentityTrail; readonly isShared: boolean } {
  const isOldBoot = hello.bootId !== trail.bootId && trail.earlierBoots.includes(hello.bootId);
  const isShared = hello.n <= trail.n || isOldBoot;
  const alternates = isShared && trail.sharedAt !== undefined && now - trail.sharedAt <= ALTERNATION_MS;
  return {
    isShared,
    trail: {
      n: hello.n,
      bootId: hello.bootId,
      earlierBoots: earlierBoots(trail, hello.bootId),
      sharedAt: isShared ? now : trail.sharedAt,
      isHeld: trail.isHeld || alternates,
    },
  };
}

/** Accepts the current holder of the identity, as the operator decided. */
export function settleIdentity(trail: IdentityTrail): IdentityTrail {
  return { ...trail, earlierBoots: [], sharedAt: undefined, isHeld: false };
}

function earlierBoots(trail: IdentityTrail, bootId: string): readonly string[] {
  if (trail.bootId === undefined || trail.bootId === bootId) return trail.earlierBoots;
  return [trail.bootId, ...trail.earlierBoots.filter((id) => id !== bootId && id !== trail.bootId)].slice(
    0,
    BOOTS_KEPT,
  );
}
