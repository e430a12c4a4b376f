/* a /* b */ */ -- c
# d
CALL system.expire_snapshots('t') -- e