import type { Logger } from "pino";
import { z } from "zod";
import { HostError, toError } from "../../errors.ts";
import { readRegularFile } from "../../host/files/regular-file.ts";
import type { Reader } from "../../host/reader.ts";

/** Place of an address; unknown parts are absent. */
export interface Location {
  /** Degrees. */
  readonly latitude?: number | undefined;
  readonly longitude?: number | undefined;
  readonly city?: string | undefined;
  readonly region?: string | undefined;
  /** ISO 3166-1 alpha-2. */
  readonly country?: string | undefined;
  readonly zipcode?: string | undefined;
}

/** Looks up locations of addresses in the operator's geolocation file. */
export interface Locations {
  /** Returns the place of an address; undefined if it is unknown. */
  of(address: string): Location | undefined;
  /** Reads the file again if it changed. One that cannot be used is logged, and the earlier content stays. */
  refresh(): Promise<void>;
}

const MAX_BYTES = 512 * 1024 * 1024;
const MAX_REMEMBERED = 50_000;

const text = z.string().max(256).optional().catch(undefined);
const degrees = z.number().optional().catch(undefined);
const Named = z.object({ iso_code: text, names: z.object({ en: text }).optional().catch(undefined) });

/** Record of a database with cities or countries, in the form of GeoIP2. */
const PlaceRecord = z
  .object({
    location: z.object({ latitude: degrees, longitude: degrees }).optional().catch(undefined),
    city: Named.optional().catch(undefined),
    subdivisions: z.array(Named).optional().catch(undefined),
    country: Named.optional().catch(undefined),
    postal: z.object({ code: text }).optional().catch(undefined),
  })
  .transform(({ location, city, subdivisions: [area] = [], country, postal }) => ({
    latitude: location?.latitude,
    longitude: location?.longitude,
    city: city?.names?.en,
    region: area?.names?.en ?? area?.iso_code,
    country: country?.iso_code,
    zipcode: postal?.code,
  }));

/**
 * Opens a geolocation file in MaxMind DB format 2.0, of at most 512 MiB, which is kept in memory.
 * @throws {HostError} `geo-file-unusable`
 */
export async function openLocations(
  path: string,
  reader: Pick<Reader, "fingerprint">,
  log: Logger,
): Promise<Locations> {
  let fingerprint = reader.fingerprint(path);
  let lookUp = await load(path, log);
  let remembered = new Map<string, Location | undefined>();
  return {
    of(address) {
      if (remembered.has(address)) return remembered.get(address);
      if (remembered.size >= MAX_REMEMBERED) remembered = new Map();
      const found = lookUp(address);
      remembered.set(address, found);
      return found;
    },
    async refresh() {
      const current = reader.fingerprint(path);
      if (current === fingerprint) return;
      fingerprint = current;
      try {
        lookUp = await load(path, log);
        remembered = new Map();
      } catch (error) {
        log.warn({ path, err: toError(error) }, "geolocation file cannot be used; the earlier one stays");
      }
    },
  };
}

/** Reads a file. Returns its lookup, for which an address without a readable record is unknown. */
async function load(path: string, log: Logger): Promise<(address: string) => Location | undefined> {
  const { Reader: Database } = await import("mmdb-lib");
  try {
    const bytes = await readRegularFile(path, MAX_BYTES);
    const database = new Database(bytes);
    const { binaryFormatMajorVersion: format, searchTreeSize, databaseType, buildEpoch } = database.metadata;
    if (format !== 2) throw unusable(path, `its format is ${format}, not 2`);
    if (!(searchTreeSize < bytes.length)) throw unusable(path, "it is shorter than its search tree");
    log.info({ path, type: databaseType, builtAt: buildEpoch.toISOString() }, "geolocation file read");
    return (address) => {
      try {
        return PlaceRecord.safeParse(database.get(address)).data;
      } catch {
        return undefined;
      }
    };
  } catch (error) {
    throw error instanceof HostError ? error : unusable(path, toError(error).message, error);
  }
}

const unusable = (path: string, why: string, cause?: unknown): HostError =>
  new HostError(
    "geo-file-unusable",
    `${path} cannot be used as a geolocation database (MMDB): ${why}; give another --geo-file`,
    cause === undefined ? {} : { cause },
  );
