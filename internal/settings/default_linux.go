package settings

const defaultTransports = "shm,tcp"
