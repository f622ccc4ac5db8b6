! Nonblocking broadcasts of a Fortran program, with every number checked. DOOR selects the MPI's
! Fortran API: 1 mpif.h, 2 the module mpi, 3 the module mpi_f08; 5: Open MPI's constants and
! fortran_doors.c, which also has persistent broadcasts, used with the argument `again`. Prints
! `requests ok`.
program fortran_requests
#if DOOR == 3
    use mpi_f08
#elif DOOR == 2
    use mpi
#endif
    implicit none
#if DOOR == 1
    include 'mpif.h'
#elif DOOR == 5
    integer, parameter :: MPI_COMM_WORLD = 0, MPI_INTEGER = 7, MPI_INFO_NULL = 0, MPI_REQUEST_NULL = 0
    external :: MPI_Init, MPI_Comm_rank, MPI_Comm_size, MPI_Comm_dup, MPI_Comm_free, MPI_Finalize
    external :: MPI_Bcast, MPI_Ibcast, MPI_Bcast_init, MPI_Start, MPI_Startall, MPI_Wait, MPI_Request_free
#endif
    integer, parameter :: rounds = 100, many = 4, longest = 20000
#if DOOR == 3
    type(MPI_Comm) :: comm
    type(MPI_Request) :: requests(many)
    type(MPI_Status) :: status
#else
    integer :: comm, requests(many), status(16)
#endif
    integer, asynchronous, save :: numbers(longest, many)
    integer :: error, rank, ranks, n, k, count
    character(5) :: which

    call get_command_argument(1, which)
    call MPI_Init(error)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
    call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
    call MPI_Comm_dup(MPI_COMM_WORLD, comm, error)
    ! In a blocking broadcast first, all ranks agree how later ones are sent.
    count = 10
    call fill(0, 1)
    call MPI_Bcast(numbers, count, MPI_INTEGER, root(1), comm, error)
    if (error /= 0) stop 1
    call check(0, 1)
    if (which == 'again') then
        call again()
    else
        call once()
    end if
    call MPI_Comm_free(comm, error)
    if (rank == 0) print '(a)', 'requests ok'
    call MPI_Finalize(error)

contains

    subroutine once()
        do n = 1, rounds
            count = n * longest / rounds
            do k = 1, many
                call fill(n, k)
                call MPI_Ibcast(numbers(1, k), count, MPI_INTEGER, root(k), comm, requests(k), error)
                if (error /= 0) stop 1
            end do
            do k = many, 1, -1
                call MPI_Wait(requests(k), status, error)
                if (error /= 0 .or. requests(k) /= MPI_REQUEST_NULL) stop 1
                call check(n, k)
            end do
        end do
    end subroutine once

    subroutine again()
#if DOOR == 5
        do k = 1, many
            call MPI_Bcast_init(numbers(1, k), longest, MPI_INTEGER, root(k), comm, MPI_INFO_NULL, requests(k), error)
            if (error /= 0) stop 1
        end do
        count = longest
        do n = 1, rounds
            do k = 1, many
                call fill(n, k)
            end do
            call MPI_Start(requests(1), error)
            if (error == 0) call MPI_Startall(many - 1, requests(2), error)
            if (error /= 0) stop 1
            do k = many, 1, -1
                call MPI_Wait(requests(k), status, error)
                if (error /= 0 .or. requests(k) == MPI_REQUEST_NULL) stop 1
                call check(n, k)
            end do
        end do
        do k = 1, many
            call MPI_Request_free(requests(k), error)
            if (error /= 0 .or. requests(k) /= MPI_REQUEST_NULL) stop 1
        end do
#endif
    end subroutine again

    integer function root(k)
        integer, intent(in) :: k
        root = mod(k, ranks)
    end function root

    subroutine fill(n, k)
        integer, intent(in) :: n, k
        numbers(:, k) = -1
        if (rank == root(k)) numbers(:count, k) = n * 7 + k
    end subroutine fill

    subroutine check(n, k)
        integer, intent(in) :: n, k
        if (any(numbers(:count, k) /= n * 7 + k) .or. any(numbers(count + 1:, k) /= -1)) then
            print *, 'requests MISMATCH', rank, n, k
            stop 1
        end if
    end subroutine check
end program fortran_requests
