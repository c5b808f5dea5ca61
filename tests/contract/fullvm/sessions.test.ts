import { sessionsContract } from "../sessions.ts";
import { FULLVM } from "./backend.ts";

sessionsContract(FULLVM);
