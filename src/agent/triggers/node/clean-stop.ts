/** Marker of a clean stop; if absent at the next start, the last stop was unclean. */
export interface CleanStop {
  mark(): Promise<void>;
  clear(): Promise<void>;
}
