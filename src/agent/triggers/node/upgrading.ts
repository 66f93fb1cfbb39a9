import { InputError } from "../../../errors.ts";

/** Reports whether an upgrade is running. */
export type IsUpgrading = () => Promise<boolean>;

/** Refuses a restart during an upgrade, since it would count against the new version. @throws {InputError} `busy`. */
export async function refuseWhileUpgrading(isUpgrading: IsUpgrading): Promise<void> {
  if (await isUpgrading())
    throw new InputError("busy", "an upgrade is in progress; it restarts the needed services by itself");
}
