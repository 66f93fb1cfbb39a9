import { hostDirectories } from "../../host/files/directories.ts";
import { hostFiles } from "../../host/files/files.ts";
import { hostVersions, type Versions } from "../../host/releases/versions.ts";
import { versionDirectories } from "../frame/settings.ts";

/** Opens the versions installed on this machine for reading. */
export function openInstalled(signal: AbortSignal): Pick<Versions, "list" | "standing"> {
  return hostVersions({ ...versionDirectories(), files: hostFiles(), directories: hostDirectories(), signal });
}
