import { hostDirectories } from "../../host/files/directories.ts";
import { hostFiles } from "../../host/files/files.ts";
import { hostVersions, type Versions } from "../../host/releases/versions.ts";
import { versionDirectories } from "../frame/settings.ts";

/** The versions on this machine, to be looked at. */
export function openInstalled(signal: AbortSignal): Pick<Versions, "list" | "standing"> {
  return hostVersions({ ...versionDirectories(), files: hostFiles(), directories: hostDirectories(), signal });
}
