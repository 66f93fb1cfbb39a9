/** The marker whose absence at the next start tells that the last stop was not meant. */
export interface CleanStop {
  mark(): Promise<void>;
  clear(): Promise<void>;
}
