import { InputError } from "../../../errors.ts";

/** Whether an upgrade is at work. */
export type IsUpgrading = () => Promise<boolean>;

/** A restart in its midst would count against the new version. @throws {InputError} `busy`. */
export async function refuseWhileUpgrading(isUpgrading: IsUpgrading): Promise<void> {
  if (await isUpgrading())
    throw new InputError("busy", "an upgrade is in progress; it restarts what it has to by itself");
}
